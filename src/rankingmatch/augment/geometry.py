"""Geometric operations as one gather: each output pixel is copied from one input pixel."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F


def crop_and_flip(images: Tensor, shift: Tensor, flipped: Tensor) -> Tensor:
    """Flip the images where `flipped` (n,), pad by reflection and crop at `shift` (n, 2) = (dy, dx).

    `shift` and `flipped` are on the CPU. Each row of the result is a slice of a row of the padded image or of its
    mirror image, and is copied as a whole.
    """
    count, channels, height, width = images.shape
    if count == 0:
        return images
    reach = int(shift[:, 1].abs().max())
    if 0 < reach < width:
        padded = F.pad(images, (reach, reach, 0, 0), mode="reflect")
    else:
        padded = images[..., _reflected(torch.arange(-reach, width + reach, device=images.device), width)]
    both = torch.cat([padded, padded.flip(3)])
    shift, flipped = shift.to(images.device), flipped.to(images.device)
    number = torch.arange(count, device=images.device) + count * flipped
    row = _reflected(torch.arange(height, device=images.device) + shift[:, :1], height)
    plane = (number[:, None] * channels + torch.arange(channels, device=images.device))[:, :, None]
    start = (plane * height + row[:, None]) * padded.shape[3] + (reach + shift[:, 1])[:, None, None]
    slices = both.as_strided((both.numel() - width + 1, width), (1, 1))
    return slices.index_select(0, start.flatten()).view(images.shape)


def affine(images: Tensor, matrix: Tensor) -> Tensor:
    """PIL's nearest-neighbor affine transform in 16.16 fixed-point arithmetic.

    `matrix` is (n, 6) float64: output pixel (x, y) is input pixel (a x + b y + c, d x + e y + f), with pixel centers at
    half integers. Pixels from outside the image are black.
    """
    height, width = images.shape[2:]
    a, b, c, d, e, f = matrix.unbind(1)
    # The constant terms refer to the center of the first pixel.
    fixed = torch.stack([a, b, c + (a + b) / 2, d, e, f + (d + e) / 2], 1)
    fixed = torch.floor(fixed * 65536 + 0.5).long().to(images.device)
    y = torch.arange(height, device=images.device)[:, None]
    x = torch.arange(width, device=images.device)
    a, b, c, d, e, f = fixed[:, :, None, None].unbind(1)
    # 32-bit integers are twice as fast as 64-bit ones, and wide enough for sides of fewer than 4096 pixels.
    narrow = torch.int32 if max(height, width) < 4096 else torch.int64
    from_x = ((a * x).to(narrow) + (b * y + c).to(narrow)).bitwise_right_shift_(16)
    from_y = ((d * x).to(narrow) + (e * y + f).to(narrow)).bitwise_right_shift_(16)
    inside_x, inside_y = from_x.clamp(0, width - 1), from_y.clamp(0, height - 1)
    outside = (from_x.ne_(inside_x)).bitwise_or_(from_y.ne_(inside_y)).byte()  # 1, else 0
    return _gather(images, inside_y.mul_(width).add_(inside_x)).bitwise_and_(outside.sub_(1)[:, None])


def quarter_turns(images: Tensor, turns: Tensor) -> Tensor:
    """Rotate images counterclockwise by 90° as often as `turns` (n,) says, 0 to 3; 0 or 2 if they are not square."""
    result = images.clone()
    for number in (1, 2, 3):
        rows = (turns == number).nonzero().squeeze(1).to(images.device)
        if len(rows):
            result[rows] = images[rows].rot90(number, (2, 3))
    return result


def rescale(images: Tensor, ratio: Tensor) -> Tensor:
    """Enlarge the center of each image, `ratio` of its sides, to the full size (nearest neighbor)."""
    height, width = images.shape[2:]
    ratio = ratio.double()[:, None]
    y, x = (  # positions (n, side) in the central part of a side
        (ratio * (torch.arange(side) + 0.5) + (1 - ratio) * side / 2).floor().long().clamp(0, side - 1)
        for side in (height, width)
    )
    return _gather(images, (y[:, :, None] * width + x[:, None, :]).to(images.device))


def rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices that rotate images counterclockwise around their center."""
    angle = -torch.deg2rad(degrees.double())
    cos, sin = torch.cos(angle), torch.sin(angle)
    x, y = width / 2, height / 2
    return torch.stack([cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y], 1)


def _moved(value: Tensor, height: int, width: int, *, entry: int) -> Tensor:
    """(n, 6) matrices of the identity with another entry: a slope, or a translation as a fraction of the side."""
    matrix = torch.tensor([1.0, 0, 0, 0, 1, 0], dtype=torch.float64).repeat(len(value), 1)
    matrix[:, entry] = (value * {2: width, 5: height}.get(entry, 1)).double()
    return matrix


# Shears shift each row, or column, in proportion to its y, or x, coordinate.
shear_x, translation_x, shear_y, translation_y = (partial(_moved, entry=entry) for entry in (1, 2, 3, 5))


def _reflected(position: Tensor, size: int) -> Tensor:
    """Mirror positions outside 0…size-1 at the border pixel, as often as needed."""
    if size == 1:
        return torch.zeros_like(position)
    position = position.remainder(2 * (size - 1))
    return torch.minimum(position, 2 * (size - 1) - position)


def _gather(images: Tensor, index: Tensor) -> Tensor:
    """Take each image's pixels at the flat positions `index` (n, h, w), the same for all channels."""
    index = index.long().flatten(1)[:, None].expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, index).view(images.shape)
