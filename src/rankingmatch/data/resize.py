"""Resizing of images in memory."""

import numpy as np
import torch
from torch.nn import functional as F

__all__ = ["resize_images"]


def resize_images(images: np.ndarray, side: int) -> np.ndarray:
    """Resize images to squares: each pixel is the mean of the area it covers; larger ones are interpolated.

    Parameters
    ----------
    images
        (n, h, w, c) uint8.
    side
        The side in pixels.

    Returns
    -------
    ndarray
        (n, side, side, c) uint8.
    """
    planes = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32))
    mode = "bicubic" if side > max(planes.shape[2:]) else "area"
    resized = F.interpolate(planes, (side, side), mode=mode).round().clamp(0, 255).to(torch.uint8)
    return resized.permute(0, 2, 3, 1).contiguous().numpy()
