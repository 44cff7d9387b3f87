"""Geometry as one gather: every output pixel names the input pixel it comes from."""

import torch
from torch import Tensor
from torch.nn import functional as F


def crop_and_flip(images: Tensor, shift: Tensor, flipped: Tensor) -> Tensor:
    """Flip where `flipped` (n,), pad by reflection and crop back to size at `shift` (n, 2) = (dy, dx).

    `shift` and `flipped` are on the CPU. A row of the result is a piece of a row of the padded image, or of its mirror
    image: it is copied as a whole.
    """
    count, channels, height, width = images.shape
    reach = int(shift[:, 1].abs().max()) if count else 0
    padded = _padded(images, reach)
    both = torch.cat([padded, padded.flip(3)])
    shift, flipped = shift.to(images.device), flipped.to(images.device)
    number = torch.arange(count, device=images.device) + count * flipped
    row = _reflected(torch.arange(height, device=images.device) + shift[:, :1], height)
    plane = (number[:, None] * channels + torch.arange(channels, device=images.device))[:, :, None]
    start = (plane * height + row[:, None]) * padded.shape[3] + (reach + shift[:, 1])[:, None, None]
    if count == 0:
        return images
    pieces = both.as_strided((both.numel() - width + 1, width), (1, 1))
    return pieces.index_select(0, start.flatten()).view(images.shape)


def _padded(images: Tensor, reach: int) -> Tensor:
    """Images with `reach` mirrored columns at both sides."""
    width = images.shape[3]
    if 0 < reach < width:
        return F.pad(images, (reach, reach, 0, 0), mode="reflect")
    return images[..., _reflected(torch.arange(-reach, width + reach, device=images.device), width)]


def affine(images: Tensor, matrix: Tensor) -> Tensor:
    """PIL's nearest-neighbour affine transform in its 16.16 fixed-point arithmetic.

    `matrix` is (n, 6) float64: output pixel (x, y) shows input (a x + b y + c, d x + e y + f), pixel centres
    at half integers. What lies outside the image is black.
    """
    height, width = images.shape[2:]
    a, b, c, d, e, f = matrix.unbind(1)
    # The constant terms belong to the centre of the first pixel.
    fixed = torch.stack([a, b, c + (a + b) / 2, d, e, f + (d + e) / 2], 1)
    fixed = torch.floor(fixed * 65536 + 0.5).long().to(images.device)
    y = torch.arange(height, device=images.device)[:, None]
    x = torch.arange(width, device=images.device)
    a, b, c, d, e, f = fixed[:, :, None, None].unbind(1)
    # Half as wide numbers are twice as fast, where all positions have room in them.
    narrow = torch.int32 if max(height, width) < 4096 else torch.int64
    from_x = ((a * x).to(narrow) + (b * y + c).to(narrow)).bitwise_right_shift_(16)
    from_y = ((d * x).to(narrow) + (e * y + f).to(narrow)).bitwise_right_shift_(16)
    inside_x, inside_y = from_x.clamp(0, width - 1), from_y.clamp(0, height - 1)
    outside = (from_x.ne_(inside_x)).bitwise_or_(from_y.ne_(inside_y)).byte()  # 1, else 0
    return _gather(images, inside_y.mul_(width).add_(inside_x)).bitwise_and_(outside.sub_(1)[:, None])


def quarter_turns(images: Tensor, turns: Tensor) -> Tensor:
    """Images turned counter-clockwise by `turns` (n,) times 90°, 0 to 3, on the CPU; oblong ones by 0 or 2 only."""
    result = images.clone()
    for number in (1, 2, 3):
        rows = (turns == number).nonzero().squeeze(1).to(images.device)
        if len(rows):
            result[rows] = images[rows].rot90(number, (2, 3))
    return result


def rescale(images: Tensor, ratio: Tensor) -> Tensor:
    """The middle of each image, `ratio` of its sides, enlarged to the whole; each pixel is the nearest."""
    height, width = images.shape[2:]
    y = _enlarged(height, ratio).to(images.device)
    x = _enlarged(width, ratio).to(images.device)
    return _gather(images, y[:, :, None] * width + x[:, None, :])


def _enlarged(length: int, ratio: Tensor) -> Tensor:
    """(n, length) positions in the middle part of a side."""
    ratio = ratio.double()[:, None]
    centre = torch.arange(length, dtype=torch.float64) + 0.5
    return (ratio * centre + (1 - ratio) * length / 2).floor().long().clamp(0, length - 1)


def rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices that turn images counter-clockwise around their centre."""
    angle = -torch.deg2rad(degrees.double())
    cos, sin = torch.cos(angle), torch.sin(angle)
    x, y = width / 2, height / 2
    return torch.stack([cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y], 1)


def shear_x(slope: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices that move each row sideways in proportion to its height."""
    return _matrix(slope, position=1)


def shear_y(slope: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices that move each column up or down in proportion to its place."""
    return _matrix(slope, position=3)


def translation_x(share: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices that move images sideways by a share of their width."""
    return _matrix(share * width, position=2)


def translation_y(share: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices that move images up or down by a share of their height."""
    return _matrix(share * height, position=5)


def _matrix(value: Tensor, position: int) -> Tensor:
    """The identity with one entry replaced."""
    matrix = torch.tensor([1.0, 0, 0, 0, 1, 0], dtype=torch.float64).repeat(len(value), 1)
    matrix[:, position] = value.double()
    return matrix


def _reflected(position: Tensor, size: int) -> Tensor:
    """Positions outside 0…size-1 mirrored at the border pixel, as often as needed."""
    if size == 1:
        return torch.zeros_like(position)
    position = position.remainder(2 * (size - 1))
    return torch.minimum(position, 2 * (size - 1) - position)


def _gather(images: Tensor, index: Tensor) -> Tensor:
    """Each image's pixels in the order of `index` (n, h, w), the same for all channels."""
    index = index.long().flatten(1)[:, None].expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, index).view(images.shape)
