"""Thumbnails: one picture that holds all of them, so that a page has a few large files instead of thousands."""

import base64
import io

import numpy as np
from PIL import Image

MOST = 48  # pixels on the longer side of a thumbnail
BLOCK = 8  # JPEG's blocks: tiles that are multiples of them do not bleed into each other
LOSSLESS = 20  # images up to this side are kept as they are


class Sheet:
    """Gathers images by their row; each gets a place on the sheet, once."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._tiles: list[np.ndarray] = []

    def place(self, row: int, image: np.ndarray) -> int:
        """The place of an (h, w, c) image, which is put there if it is new."""
        if row not in self._places:
            self._places[row] = len(self._tiles)
            self._tiles.append(thumbnail(image))
        return self._places[row]

    def places(self, rows: np.ndarray, images: np.ndarray) -> list[int]:
        """The places of several."""
        return [self.place(int(row), image) for row, image in zip(rows, images, strict=True)]

    def to_json(self) -> dict[str, object] | None:
        """The sheet as a data address, with what is needed to find a place on it; None if it is empty."""
        if not self._tiles:
            return None
        height, width = self._tiles[0].shape[:2]
        lossless = max(height, width) <= LOSSLESS
        step_y, step_x = (height, width) if lossless else (_rounded_up(height), _rounded_up(width))
        columns = max(1, round((len(self._tiles) * step_y / step_x) ** 0.5))
        rows = -(-len(self._tiles) // columns)
        sheet = np.zeros((rows * step_y, columns * step_x, self._tiles[0].shape[2]), np.uint8)
        padding = ((0, step_y - height), (0, step_x - width), (0, 0))
        for place, tile in enumerate(self._tiles):
            y, x = place // columns * step_y, place % columns * step_x
            sheet[y : y + step_y, x : x + step_x] = np.pad(tile, padding, mode="edge")
        return {
            "image": _data_address(sheet, lossless),
            "width": width,
            "height": height,
            "stepX": step_x,
            "stepY": step_y,
            "columns": columns,
            "rows": rows,
            "count": len(self._tiles),
        }


def thumbnail(image: np.ndarray) -> np.ndarray:
    """An (h, w, 1 or 3) image, made smaller if it is larger than a thumbnail."""
    height, width, channels = image.shape
    image = image if channels in (1, 3) else image[..., :1]
    if max(height, width) <= MOST:
        return image
    share = MOST / max(height, width)
    size = (max(1, round(width * share)), max(1, round(height * share)))
    small = np.asarray(_picture(image).resize(size, Image.Resampling.BOX))
    return small.reshape(*small.shape[:2], -1)


def _rounded_up(side: int) -> int:
    return -(-side // BLOCK) * BLOCK


def _picture(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)


def _data_address(sheet: np.ndarray, lossless: bool) -> str:
    file = io.BytesIO()
    if lossless:
        _picture(sheet).save(file, "PNG", optimize=True)
    else:
        _picture(sheet).save(file, "JPEG", quality=85, subsampling=0, optimize=True)
    kind = "png" if lossless else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
