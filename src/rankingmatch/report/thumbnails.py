"""Thumbnails: a sprite is one picture that holds many, so that a page has a few large images instead of thousands."""

import base64
import io
from typing import TypedDict

import numpy as np
from PIL import Image

LONGEST_SIDE = 48  # pixels of a thumbnail
JPEG_BLOCK = 8  # tiles that are multiples of JPEG's blocks do not bleed into each other
LOSSLESS_SIDE = 20  # thumbnails up to this side are stored as PNG


class SpriteData(TypedDict):
    """A sprite on the page. Thumbnail `i` is in column `i % columns` and row `i // columns` of the tiles."""

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

    def add(self, row: int, image: np.ndarray) -> int:
        """Add the (h, w, c) image with this row number unless it is there; returns the index of its thumbnail."""
        if row not in self._indices:
            self._indices[row] = len(self._thumbnails)
            self._thumbnails.append(thumbnail(image))
        return self._indices[row]

    def add_all(self, rows: np.ndarray, images: np.ndarray) -> list[int]:
        """Add several images; returns the indices of their thumbnails."""
        return [self.add(int(row), image) for row, image in zip(rows, images, strict=True)]

    def to_data(self) -> SpriteData | None:
        """The sprite as plain values; None if it is empty."""
        if not self._thumbnails:
            return None
        height, width, channels = self._thumbnails[0].shape
        lossless = max(height, width) <= LOSSLESS_SIDE
        tile_height, tile_width = (height, width) if lossless else (_rounded_up(height), _rounded_up(width))
        columns = max(1, round((len(self._thumbnails) * tile_height / tile_width) ** 0.5))
        rows = -(-len(self._thumbnails) // columns)
        pixels = np.zeros((rows * tile_height, columns * tile_width, channels), np.uint8)
        padding = ((0, tile_height - height), (0, tile_width - width), (0, 0))
        for index, small in enumerate(self._thumbnails):
            y, x = index // columns * tile_height, index % columns * tile_width
            pixels[y : y + tile_height, x : x + tile_width] = np.pad(small, padding, mode="edge")
        return {
            "image": _data_url(pixels, lossless),
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


def _rounded_up(side: int) -> int:
    return -(-side // JPEG_BLOCK) * JPEG_BLOCK


def _to_pil(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)


def _data_url(pixels: np.ndarray, lossless: bool) -> str:
    file = io.BytesIO()
    if lossless:
        _to_pil(pixels).save(file, "PNG", optimize=True)
    else:
        _to_pil(pixels).save(file, "JPEG", quality=85, subsampling=0, optimize=True)
    kind = "png" if lossless else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
