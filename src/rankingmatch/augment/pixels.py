"""Operations on the values of uint8 images (n, c, h, w): lookup tables, and filters over neighbors or channels.

All use PIL's arithmetic (float32 blends, float64 stretches, integer steps): the results equal PIL's bit for bit.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def gray(images: Tensor) -> Tensor:
    """Grayscale images (n, h, w) of int32: ITU-R 601 luma for three channels as in PIL, else the rounded mean."""
    channels = images.shape[1]
    if channels == 1:
        return images[:, 0].int()
    if channels == 3:
        red, green, blue = images.int().unbind(1)
        weighted = red.mul_(19595).add_(green, alpha=38470).add_(blue, alpha=7471).add_(0x8000)
        return weighted.bitwise_right_shift_(16)
    return (2 * images.sum(1, dtype=torch.int32) + channels) // (2 * channels)


def blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """PIL's Image.blend: degenerate + factor · (images - degenerate) in float32, clipped to uint8.

    `factor` is (n,) and applies along the first dimension.
    """
    factor = factor.float().to(images.device).view(-1, *[1] * (images.ndim - 1))
    return (images.float() - degenerate).mul_(factor).add_(degenerate).clamp_(0, 255).byte()


# --- tables (n, c, 256) uint8, one per channel -----------------------------------------------------------------


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Replace each pixel by its entry in the table (n, c, 256) of its image and channel."""
    return tables.gather(2, images.flatten(2).long()).view(images.shape)


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel so that its smallest value becomes 0 and its largest 255."""
    # PIL uses float64, which Apple's GPUs lack: there, these two numbers per channel go through the CPU.
    exact = torch.device("cpu") if images.device.type == "mps" else images.device
    low = images.flatten(2).amin(2, keepdim=True).to(exact).double()
    high = images.flatten(2).amax(2, keepdim=True).to(exact).double()
    levels = torch.arange(256, dtype=torch.float64, device=exact)
    # A true division: torch computes `255.0 / tensor` as a product with the reciprocal, off by an ulp.
    scale = torch.full_like(low, 255.0) / (high - low).clamp(min=1)
    stretched = (levels * scale + (-low * scale)).clamp(0, 255)
    return torch.where(high > low, stretched, levels).byte().to(images.device)


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Equalize the histogram of each channel."""
    n, c = images.shape[:2]
    pixels = images.flatten(2).long()
    # Unlike `bincount`, this has a fixed size, so that a device need not report the largest value.
    histogram = pixels.new_zeros(n, c, 256).scatter_add_(2, pixels, torch.ones_like(pixels))
    last = histogram.gather(2, pixels.amax(2, keepdim=True))  # how many pixels have the largest value
    step = (histogram.sum(2, keepdim=True) - last) // 255
    below = histogram.cumsum(2) - histogram
    spread = (step // 2 + below) // step.clamp(min=1)
    return torch.where(step > 0, spread.clamp(max=255), _levels(images)).byte()


def invert(images: Tensor, _: Tensor) -> Tensor:
    """The negative."""
    return 255 - _levels(images)


def blended_table(operation: Callable[[Tensor, Tensor], Tensor], images: Tensor, fraction: Tensor) -> Tensor:
    """Blend with the result of an operation: 0 is the image, 1 the result."""
    return blend(_levels(images), operation(images, fraction), fraction)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black: 0 is black, 1 the image."""
    levels = _levels(images)
    return blend(torch.zeros_like(levels), levels, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean gray value of the image: 0 is gray, 1 the image."""
    levels = _levels(images)
    total = gray(images).flatten(1).sum(1)
    pixels = images.shape[2] * images.shape[3]
    mean = (2 * total + pixels) // (2 * pixels)
    return blend(mean.view(-1, 1, 1).expand_as(levels), levels, factor)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits of each value: 1 to 8 of them, rounded down."""
    dropped = 8 - bits.long().clamp(1, 8).to(images.device).view(-1, 1, 1)
    return ((_levels(images) >> dropped) << dropped).byte()


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the values at or above a threshold, given as a fraction of the range, 0 to 1."""
    levels = _levels(images)
    cut = (threshold * 255.999).long().to(images.device).view(-1, 1, 1)
    return torch.where(levels < cut, levels, 255 - levels).byte()


def _levels(images: Tensor) -> Tensor:
    """The values 0…255 as tables (n, c, 256)."""
    return torch.arange(256, device=images.device).expand(*images.shape[:2], 256)


# --- filters ---------------------------------------------------------------------------------------------------


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grayscale image: 0 is grayscale, 1 the image. One channel is grayscale already."""
    if images.shape[1] == 1:
        return images
    return blend(gray(images)[:, None].expand_as(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image: 0 is the smoothed image, 1 the image."""
    return blend(smooth(images), images, factor)


def blended(operation: Callable[[Tensor], Tensor], images: Tensor, fraction: Tensor) -> Tensor:
    """Blend with the result of an operation: 0 is the image, 1 the result."""
    return blend(images, operation(images), fraction)


def smooth(images: Tensor) -> Tensor:
    """PIL's SMOOTH filter: a 3×3 kernel of ones with 5 in the center, divided by 13; the border is unchanged."""
    height, width = images.shape[2:]
    if min(height, width) < 3:
        return images
    wide = images.int()
    rows = (wide[:, :, :-2] + wide[:, :, 1:-1]).add_(wide[:, :, 2:])
    weighted = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:]).add_(wide[:, :, 1:-1, 1:-1], alpha=4)
    result = images.clone()
    # 13 is odd, so rounding has no ties: (w + 6) // 13 rounds w / 13.
    # And v // 13 is (v · 20165) >> 18 for every v up to 13 · 255 + 6.
    result[:, :, 1:-1, 1:-1] = weighted.add_(6).mul_(20165).bitwise_right_shift_(18)
    return result


def blur(images: Tensor) -> Tensor:
    """PIL's BLUR filter: the mean of the 16 outer pixels of a 5×5 window; the border is unchanged."""
    height, width = images.shape[2:]
    if min(height, width) < 5:
        return images
    wide = images.short()
    ring = _sum_of_squares(wide, 5) - _sum_of_squares(wide[:, :, 1:-1, 1:-1], 3)
    result = images.clone()
    result[:, :, 2:-2, 2:-2] = (ring + 8) // 16
    return result


def _sum_of_squares(values: Tensor, side: int) -> Tensor:
    """Sums over all squares of this side that lie inside the image."""
    height, width = values.shape[2] - side + 1, values.shape[3] - side + 1
    rows = torch.stack([values[:, :, i : i + height] for i in range(side)]).sum(0, dtype=torch.short)
    return torch.stack([rows[..., i : i + width] for i in range(side)]).sum(0, dtype=torch.short)
