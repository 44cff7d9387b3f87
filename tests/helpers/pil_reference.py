"""The operations as PIL does them, image by image: the oracle of the batched ones."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from real_images import from_pil, to_pil
from torch import Tensor

from rankingmatch.augment.policies import WeakDraw


def affine(*matrix: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix)


References = Mapping[str, Callable[[Image.Image, float], Image.Image]]

PIL_OPERATIONS: References = {
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


def zoomed(image: Image.Image, ratio: float) -> Image.Image:
    return affine(ratio, 0, (1 - ratio) * image.width / 2, 0, ratio, (1 - ratio) * image.height / 2)(image)


# Those of CTAugment that are different or new.
PIL_CTA_OPERATIONS: References = {
    **PIL_OPERATIONS,
    "autocontrast": lambda image, v: Image.blend(image, ImageOps.autocontrast(image), v),
    "equalize": lambda image, v: Image.blend(image, ImageOps.equalize(image), v),
    "invert": lambda image, v: Image.blend(image, ImageOps.invert(image), v),
    "blur": lambda image, v: Image.blend(image, image.filter(ImageFilter.BLUR), v),
    "smooth": lambda image, v: Image.blend(image, image.filter(ImageFilter.SMOOTH), v),
    "rescale": zoomed,
    "cutout": lambda image, _: image,
}


def by_pil(name: str, images: Tensor, magnitudes: Tensor, operations: References = PIL_OPERATIONS) -> Tensor:
    operation = operations[name]
    return torch.stack([from_pil(operation(to_pil(i), v)) for i, v in zip(images, magnitudes.tolist(), strict=True)])


def weak_by_pil(image: Tensor, draw: WeakDraw, i: int, padding: int) -> Tensor:
    """The weak view of image number i of a draw."""
    pixels = image.permute(1, 2, 0).numpy()
    if draw.flipped[i]:
        pixels = np.array(ImageOps.mirror(Image.fromarray(pixels)))
    padded = np.pad(pixels, ((padding, padding), (padding, padding), (0, 0)), mode="reflect")
    top, left = (draw.shift[i] + padding).tolist()
    cropped = padded[top : top + image.shape[1], left : left + image.shape[2]]
    return torch.from_numpy(cropped.copy()).permute(2, 0, 1)


def gray_square(image: Tensor, center: Tensor, side: int) -> Tensor:
    pixels, (y, x) = to_pil(image), center.tolist()
    top, left = y - side // 2, x - side // 2
    pixels.paste((127, 127, 127), (left, top, left + side, top + side))
    return from_pil(pixels)
