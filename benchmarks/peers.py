"""Other implementations to compare with: PIL image by image, kornia, pytorch-metric-learning, dense triplets, loops."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.augment import OPERATIONS, RANDAUGMENT_NAMES, RandAugment, Weak

# PIL's operations and the photographs are defined once, for the tests.
sys.path.append(str(Path(__file__).parents[1] / "tests/helpers"))
from pil_reference import PIL_OPERATIONS
from real_images import photographs as photographs

# --- PIL, image by image ------------------------------------------------------------------------------------


def pil_weak(image: Image.Image, policy: Weak) -> Image.Image:
    """Flip, pad by reflection, crop."""
    if policy.flip and random.random() < 0.5:
        image = ImageOps.mirror(image)
    pixels, pad, (width, height) = np.asarray(image), policy.padding, image.size
    edges = ((pad, pad), (pad, pad), (0, 0))[: pixels.ndim]
    padded = Image.fromarray(np.pad(pixels, edges, mode="reflect"))  # PIL cannot reflect
    x, y = random.randint(0, 2 * pad), random.randint(0, 2 * pad)
    return padded.crop((x, y, x + width, y + height))


def pil_strong(image: Image.Image, policy: RandAugment) -> Image.Image:
    """A weak view, the operations, the gray square."""
    image = pil_weak(image, policy.weak)
    for name in random.choices(RANDAUGMENT_NAMES, k=policy.operations):
        if random.random() < policy.probability:
            low, high = OPERATIONS[name].low, OPERATIONS[name].high
            image = PIL_OPERATIONS[name](image, low + random.random() * (high - low))
    x, y, half = random.randrange(image.width), random.randrange(image.height), policy.cutout // 2
    gray = 127 if image.mode == "L" else (127, 127, 127)
    image.paste(gray, (max(x - half, 0), max(y - half, 0), min(x + half, image.width), min(y + half, image.height)))
    return image


def pil_tensor(image: Image.Image) -> Tensor:
    """(c, h, w) float32 in 0…1."""
    pixels = np.array(image)
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(255)


def pil_views(images: np.ndarray, *views: Callable[[Image.Image], Image.Image]) -> list[Tensor]:
    """Views of (n, h, w, c) uint8 images, image by image, each view as a batch."""
    made: list[list[Tensor]] = [[] for _ in views]
    for pixels in images:
        image = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
        for batch, view in zip(made, views, strict=True):
            batch.append(pil_tensor(view(image)))
    return [torch.stack(batch) for batch in made]


# --- kornia -------------------------------------------------------------------------------------------------


def kornia_operations() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """kornia's batched operations: (n, c, h, w) float images in 0…1 and a magnitude for each."""
    import kornia.enhance as enhance
    import kornia.geometry.transform as geometry

    def translated(images: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
        zeros = torch.zeros(len(images))
        result: Tensor = geometry.translate(images, torch.stack([x + zeros, y + zeros], 1), mode="nearest")
        return result

    def sheared(images: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
        zeros = torch.zeros(len(images))
        result: Tensor = geometry.shear(images, torch.stack([x + zeros, y + zeros], 1), mode="nearest")
        return result

    return {
        "identity": lambda images, _: images,
        "autocontrast": lambda images, _: enhance.normalize_min_max(images),
        "brightness": enhance.adjust_brightness_accumulative,
        "color": enhance.adjust_saturation_with_gray_subtraction,
        "contrast": enhance.adjust_contrast_with_mean_subtraction,
        "equalize": lambda images, _: enhance.equalize(images),
        "posterize": lambda images, bits: enhance.posterize(images, bits.int()),
        "rotate": lambda images, angle: geometry.rotate(images, angle, mode="nearest"),
        "sharpness": enhance.sharpness,
        "shear-x": lambda images, slope: sheared(images, slope, 0.0),
        "shear-y": lambda images, slope: sheared(images, 0.0, slope),
        "solarize": enhance.solarize,
        "translate-x": lambda images, share: translated(images, share * images.shape[3], 0.0),
        "translate-y": lambda images, share: translated(images, 0.0, share * images.shape[2]),
    }


class KorniaPipeline:
    """Weak and strong views with kornia's operations, each called once for all images that drew it."""

    def __init__(self, policy: RandAugment, height: int, width: int) -> None:
        import kornia.augmentation as augmentation

        self.policy = policy
        pad = policy.weak.padding
        flip = augmentation.RandomHorizontalFlip(0.5 if policy.weak.flip else 0.0)
        crop = augmentation.RandomCrop((height, width), pad, padding_mode="reflect", resample="nearest")
        self.weak = nn.Sequential(flip, crop)
        share = policy.cutout**2 / (height * width)
        self.cutout = augmentation.RandomErasing((share, share), (1.0, 1.0), value=0.5, p=1.0)
        self.operations = kornia_operations()

    def strong(self, images: Tensor) -> Tensor:
        """The strong view of (n, c, h, w) float images in 0…1."""
        images = self.weak(images)
        for _ in range(self.policy.operations):
            operation = torch.randint(len(RANDAUGMENT_NAMES), (len(images),))
            applied = torch.rand(len(images)) < self.policy.probability
            unit = torch.rand(len(images))
            for number in operation[applied].unique().tolist():
                name = RANDAUGMENT_NAMES[number]
                rows = (applied & (operation == number)).nonzero().squeeze(1)
                images[rows] = self.operations[name](images[rows], OPERATIONS[name].magnitude(unit[rows]))
        erased: Tensor = self.cutout(images)
        return erased

    def pair(self, images: np.ndarray) -> tuple[Tensor, Tensor]:
        """Weak and strong views of (n, h, w, c) uint8 images."""
        floats = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)
        return self.weak(floats), self.strong(floats)


# --- ranking losses -----------------------------------------------------------------------------------------


def all_triplets_of_metric_learning() -> Callable[[Tensor, Tensor], Tensor]:
    """pytorch-metric-learning's loss over all triplets, as in Eq. (4)."""
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.reducers import MeanReducer

    loss: Callable[[Tensor, Tensor], Tensor] = TripletMarginLoss(
        margin=0.5,
        smooth_loss=True,
        triplets_per_anchor="all",
        distance=LpDistance(normalize_embeddings=True),
        reducer=MeanReducer(),
    )
    return loss


def all_triplets_dense(logits: Tensor, labels: Tensor) -> Tensor:
    """Eq. (4) as an n×n×n tensor."""
    rows = F.normalize(logits)
    distance = torch.cdist(rows, rows)
    same = labels[:, None] == labels
    positive, negative = same & ~torch.eye(len(labels), dtype=torch.bool), ~same
    valid = positive[:, :, None] & negative[:, None, :]
    cost = F.softplus(0.5 + distance[:, :, None] - distance[:, None, :]) * valid
    return cost.sum() / valid.sum()


# --- a training step ----------------------------------------------------------------------------------------


@torch.no_grad()
def ema_loop(ema: nn.Module, model: nn.Module, decay: float) -> None:
    """Update the EMA of the weights, tensor by tensor."""
    for average, new in zip(ema.state_dict().values(), model.state_dict().values(), strict=True):
        average.copy_(decay * average + (1 - decay) * new) if average.is_floating_point() else average.copy_(new)
