"""What a section of the page is, and the thumbnails that sections share. Each section is a module of this package.

To add one, see "Add a section" in docs/report.md.
"""

import base64
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TypedDict

import numpy as np
from PIL import Image

from rankingmatch.report.run_data import Predictions, RunData

# Modules of this package, each with a `SECTION`, in the order of the tabs.
SECTION_NAMES = ["overview", "training", "classes", "embedding", "pairs", "pseudo_labels"]

LONGEST_SIDE = 48  # pixels of a thumbnail
JPEG_BLOCK = 8  # tiles that are multiples of JPEG's blocks do not bleed into each other
LOSSLESS_SIDE = 20  # thumbnails up to this side are stored as PNG


def load_sections() -> list["Section"]:
    """The sections of the page, in the order of the tabs."""
    return [import_module(f"{__name__}.{name}").SECTION for name in SECTION_NAMES]


@dataclass(frozen=True)
class Section:
    """A section of the page: a tab, and what its JavaScript module is given to draw."""

    key: str  # name of the Python module, of the JavaScript module, and id of the section on the page
    title: str  # of the tab
    # The return annotation is made of TypedDicts: the contract with the JavaScript module, which has the same typedefs.
    build: "Callable[[ReportInput], object]"


class OfRun(TypedDict):
    """What sections show of one run begins with its index, the subset of the images, and the key of its sprite."""

    run: int
    subset: str
    sprite: str


@dataclass(frozen=True)
class ReportInput:
    """What a section is built from. Its thumbnails are added to the sprites; sections share those of the same image."""

    runs: list[RunData]
    detailed: list[int]  # indices of the runs whose predictions are shown
    sprites: "dict[str, Sprite]"
    points: int | None = None  # most points of a map; by default it depends on the number of runs

    def predictions(self, *, unlabeled: bool = False) -> "Iterator[tuple[OfRun, Predictions, Sprite]]":
        """The evaluated or the unlabeled images of each detailed run, if any; runs on the same ones share a sprite."""
        for index in self.detailed:
            run = self.runs[index]
            if found := run.unlabeled if unlabeled else run.evaluated:
                key = f"{run.dataset} {found.subset} {'×'.join(map(str, found.images.shape[1:]))}"
                sprite = self.sprites.setdefault(key, Sprite())
                yield {"run": index, "subset": found.subset, "sprite": key}, found, sprite


# --- thumbnails ----------------------------------------------------------------------------------------------


class SpriteData(TypedDict):
    """One picture that holds many thumbnails, so that a page has a few large images instead of thousands.

    Thumbnail `i` is in column `i % columns` and row `i // columns` of the tiles.
    """

    image: str  # data URL
    width: int  # of a thumbnail
    height: int
    tile_width: int  # of a thumbnail with its padding
    tile_height: int
    columns: int
    rows: int


class Sprite:
    """Collects thumbnails; an image is stored once, however often it is added."""

    def __init__(self) -> None:
        self._indices: dict[int, int] = {}
        self._thumbnails: list[np.ndarray] = []

    def add(self, rows: np.ndarray, images: np.ndarray) -> list[int]:
        """Add (h, w, c) images, by row numbers, unless they are there; returns the indices of their thumbnails."""
        for row, image in zip(rows.tolist(), images, strict=True):
            if row not in self._indices:
                self._indices[row] = len(self._thumbnails)
                self._thumbnails.append(thumbnail(image))
        return [self._indices[row] for row in rows.tolist()]

    def to_data(self) -> SpriteData | None:
        """The sprite as plain values; None if it is empty."""
        if not self._thumbnails:
            return None
        height, width, channels = self._thumbnails[0].shape
        lossless = max(height, width) <= LOSSLESS_SIDE
        block = 1 if lossless else JPEG_BLOCK
        tile_height, tile_width = -(-height // block) * block, -(-width // block) * block
        columns = max(1, round((len(self._thumbnails) * tile_height / tile_width) ** 0.5))
        rows = -(-len(self._thumbnails) // columns)
        pixels = np.zeros((rows * tile_height, columns * tile_width, channels), np.uint8)
        padding = ((0, tile_height - height), (0, tile_width - width), (0, 0))
        for index, small in enumerate(self._thumbnails):
            y, x = index // columns * tile_height, index % columns * tile_width
            pixels[y : y + tile_height, x : x + tile_width] = np.pad(small, padding, mode="edge")
        kind, options = ("png", {}) if lossless else ("jpeg", {"quality": 85, "subsampling": 0})
        file = io.BytesIO()
        _to_pil(pixels).save(file, kind, optimize=True, **options)
        return {
            "image": f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}",
            "width": width,
            "height": height,
            "tile_width": tile_width,
            "tile_height": tile_height,
            "columns": columns,
            "rows": rows,
        }


def thumbnails_of(sprite: SpriteData) -> list[np.ndarray]:
    """The (height, width, channels) thumbnails of a sprite, in order."""
    content = base64.b64decode(sprite["image"].partition(",")[2])
    pixels = np.asarray(Image.open(io.BytesIO(content)))
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    corners = np.ndindex(sprite["rows"], sprite["columns"])
    starts = ((row * sprite["tile_height"], column * sprite["tile_width"]) for row, column in corners)
    return [pixels[y : y + sprite["height"], x : x + sprite["width"]] for y, x in starts]


def thumbnail(image: np.ndarray) -> np.ndarray:
    """An (h, w, c) image as (h, w, 1 or 3), reduced if it is larger than a thumbnail."""
    height, width, channels = image.shape
    image = image if channels in (1, 3) else image[..., :1]
    if max(height, width) <= LONGEST_SIDE:
        return image
    scale = LONGEST_SIDE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = np.asarray(_to_pil(image).resize(size, Image.Resampling.BOX))
    return small.reshape(*small.shape[:2], -1)


def _to_pil(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
