"""Real photographs: those that come with scikit-learn, cut into squares."""

from functools import cache

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor


@cache
def photographs(channels: int = 3, side: int = 32) -> Tensor:
    """(24, channels, side, side) uint8 crops, among them flat sky, dark and bright ones."""
    rng = np.random.default_rng(0)
    crops = []
    for photo in load_sample_images().images:
        for _ in range(12):
            y, x = rng.integers(photo.shape[0] - side), rng.integers(photo.shape[1] - side)
            crops.append(photo[y : y + side, x : x + side])
    stack = np.stack(crops)
    if channels == 1:
        stack = stack.mean(3, keepdims=True).astype(np.uint8)
    return torch.from_numpy(stack).permute(0, 3, 1, 2).contiguous()


def to_pil(image: Tensor) -> Image.Image:
    pixels = image.permute(1, 2, 0).numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def from_pil(image: Image.Image) -> Tensor:
    pixels = np.array(image)
    return torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None]).permute(2, 0, 1)
