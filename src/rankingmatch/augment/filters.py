"""Operations that look at more than one value: neighbouring pixels, or a pixel's other channels."""

import torch
from torch import Tensor

from rankingmatch.augment.tables import blend, gray


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image: 0 is grey, 1 the image. One channel is grey already."""
    if images.shape[1] == 1:
        return images
    return blend(gray(images)[:, None].expand_as(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image: 0 is smooth, 1 the image."""
    return blend(smooth(images), images, factor)


def smooth(images: Tensor) -> Tensor:
    """PIL's SMOOTH filter: neighbours weigh 1, the pixel itself 5, of 13; the border is kept."""
    height, width = images.shape[2:]
    if min(height, width) < 3:
        return images
    wide = images.short()
    rows = wide[:, :, :-2] + wide[:, :, 1:-1] + wide[:, :, 2:]
    weighted = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * wide[:, :, 1:-1, 1:-1]
    result = images.clone()
    # Half of 13 is no integer, so rounding has no ties: (w + 6) // 13 rounds w / 13.
    result[:, :, 1:-1, 1:-1] = torch.div(weighted + 6, 13, rounding_mode="floor").byte()
    return result
