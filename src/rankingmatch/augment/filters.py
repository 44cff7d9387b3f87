"""Operations that depend on more than one value: on neighboring pixels, or on a pixel's other channels."""

import torch
from torch import Tensor

from rankingmatch.augment.lookup import blend, gray

__all__ = ["blur", "blur_by", "color", "sharpness", "smooth", "smooth_by"]


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grayscale image: 0 is grayscale, 1 the image. One channel is grayscale already."""
    if images.shape[1] == 1:
        return images
    return blend(gray(images)[:, None].expand_as(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image: 0 is the smoothed image, 1 the image."""
    return blend(smooth(images), images, factor)


def smooth_by(images: Tensor, fraction: Tensor) -> Tensor:
    """Blend with the smoothed image: 0 is the image, 1 the smoothed image."""
    return blend(images, smooth(images), fraction)


def blur_by(images: Tensor, fraction: Tensor) -> Tensor:
    """Blend with the blurred image: 0 is the image, 1 the blurred image."""
    return blend(images, blur(images), fraction)


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
    result[:, :, 2:-2, 2:-2] = torch.div(ring + 8, 16, rounding_mode="floor").byte()
    return result


def _sum_of_squares(values: Tensor, side: int) -> Tensor:
    """Sums over all squares of this side that lie inside the image."""
    height, width = values.shape[2] - side + 1, values.shape[3] - side + 1
    rows = torch.stack([values[:, :, i : i + height] for i in range(side)]).sum(0, dtype=torch.short)
    return torch.stack([rows[..., i : i + width] for i in range(side)]).sum(0, dtype=torch.short)
