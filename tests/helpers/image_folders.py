"""Folders of images, made for tests."""

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def picture(path: Path, color: tuple[int, int, int] = (200, 30, 30), size: tuple[int, int] = (24, 20)) -> Path:
    """Noise around a color, different for each file name; size is (width, height)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(str(path.name).encode()))
    pixels = (np.array(color) + rng.integers(-30, 30, (size[1], size[0], 3))).clip(0, 255)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


COLORS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}


def class_folders(
    folder: Path,
    each: int = 4,
    classes: tuple[str, ...] = ("red", "green", "blue"),
    size: tuple[int, int] = (24, 20),
) -> Path:
    """A folder of images for each class, named by its color."""
    for name in classes:
        for number in range(each):
            picture(folder / name / f"{folder.name}-{name}-{number}.png", COLORS.get(name, (128, 128, 128)), size)
    return folder


def digit_files(folder: Path, labeled: int = 4, unlabeled: int = 150, test: int = 5) -> Path:
    """scikit-learn's digits as PNG files: some of each class labeled, some for testing, the others unlabeled."""
    digits = load_digits()
    used = dict.fromkeys(range(10), 0)
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        used[int(label)] += 1
        part = "labeled" if used[label] <= labeled else "test" if used[label] <= labeled + test else "unlabeled"
        if part == "unlabeled" and (unlabeled := unlabeled - 1) < 0:
            continue
        path = folder / part / ("" if part == "unlabeled" else str(label)) / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.rint(image * (255 / 16)).astype(np.uint8)).save(path)
    return folder
