"""Operations that look at more than one value: neighbouring pixels, or a pixel's other channels."""

import torch
from torch import Tensor

from rankingmatch.augment.lookup import blend, gray


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image: 0 is grey, 1 the image. One channel is grey already."""
    if images.shape[1] == 1:
        return images
    return blend(gray(images)[:, None].expand_as(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image: 0 is smooth, 1 the image."""
    return blend(smooth(images), images, factor)


def smooth_by(images: Tensor, share: Tensor) -> Tensor:
    """Blend with the smoothed image: 0 is the image, 1 smooth."""
    return blend(images, smooth(images), share)


def blur_by(images: Tensor, share: Tensor) -> Tensor:
    """Blend with the blurred image: 0 is the image, 1 blurred."""
    return blend(images, blur(images), share)


def smooth(images: Tensor) -> Tensor:
    """PIL's SMOOTH filter: neighbours weigh 1, the pixel itself 5, of 13; the border is kept."""
    height, width = images.shape[2:]
    if min(height, width) < 3:
        return images
    wide = images.int()
    rows = (wide[:, :, :-2] + wide[:, :, 1:-1]).add_(wide[:, :, 2:])
    weighted = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:]).add_(wide[:, :, 1:-1, 1:-1], alpha=4)
    result = images.clone()
    # Half of 13 is no integer, so rounding has no ties: (w + 6) // 13 rounds w / 13.
    # And v // 13 is (v · 20165) >> 18 for every v up to 13 · 255 + 6.
    result[:, :, 1:-1, 1:-1] = weighted.add_(6).mul_(20165).bitwise_right_shift_(18)
    return result


def blur(images: Tensor) -> Tensor:
    """PIL's BLUR filter: the mean of the 16 pixels around the 3×3 ones in the middle of 5×5; the border is kept."""
    height, width = images.shape[2:]
    if min(height, width) < 5:
        return images
    wide = images.short()
    ring = _sum_of_squares(wide, 5) - _sum_of_squares(wide[:, :, 1:-1, 1:-1], 3)
    result = images.clone()
    result[:, :, 2:-2, 2:-2] = torch.div(ring + 8, 16, rounding_mode="floor").byte()
    return result


def _sum_of_squares(values: Tensor, side: int) -> Tensor:
    """Sums over all squares of this side that fit in."""
    height, width = values.shape[2] - side + 1, values.shape[3] - side + 1
    rows = torch.stack([values[:, :, i : i + height] for i in range(side)]).sum(0, dtype=torch.short)
    return torch.stack([rows[..., i : i + width] for i in range(side)]).sum(0, dtype=torch.short)
