"""Images brought to another size."""

from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional as F

from rankingmatch.data.split import Dataset, Images

BLOCK = 1000  # images at a time: a memory-mapped set is never in memory as a whole


def resize_images(images: np.ndarray, side: int) -> np.ndarray:
    """(n, h, w, c) uint8 images as (n, side, side, c): each new pixel is the mean of the area it covers."""
    result = np.empty((len(images), side, side, images.shape[3]), np.uint8)
    for start in range(0, len(images), BLOCK):
        block = torch.from_numpy(images[start : start + BLOCK].transpose(0, 3, 1, 2).astype(np.float32))
        result[start : start + BLOCK] = F.interpolate(block, (side, side), mode="area").round().permute(0, 2, 3, 1)
    return result


def resize_dataset(dataset: Dataset, side: int | None) -> Dataset:
    """The dataset with square images of this side; unchanged where the side is None or what it is already."""
    if side is None or dataset.train.images.shape[1:3] == (side, side):
        return dataset
    train, validation, test = (
        None if part is None else Images(resize_images(part.images, side), part.labels)
        for part in (dataset.train, dataset.validation, dataset.test)
    )
    assert train is not None
    return replace(dataset, train=train, validation=validation, test=test)
