"""The fourteen operations as PIL does them, image by image: the oracle of the batched ones."""

from collections.abc import Callable

import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from real_images import from_pil, to_pil


def affine(*matrix: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix)


PIL_OPERATIONS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda image, _: image,
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "rotate": lambda image, v: image.rotate(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "shear-x": lambda image, v: affine(1, v, 0, 0, 1, 0)(image),
    "shear-y": lambda image, v: affine(1, 0, 0, v, 1, 0)(image),
    "solarize": lambda image, v: ImageOps.solarize(image, int(v * 255.999)),
    "translate-x": lambda image, v: affine(1, 0, v * image.width, 0, 1, 0)(image),
    "translate-y": lambda image, v: affine(1, 0, 0, 0, 1, v * image.height)(image),
}


def by_pil(name: str, images: Tensor, magnitudes: Tensor) -> Tensor:
    operation = PIL_OPERATIONS[name]
    return torch.stack([from_pil(operation(to_pil(i), v)) for i, v in zip(images, magnitudes.tolist(), strict=True)])
