"""Image files of every kind are decoded to arrays of one shape."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rankingmatch.data.decode import decode, read_header

RED, SHAPE = np.array([200, 40, 20]), (8, 8, 3)


def left_red(mode: str) -> Image.Image:
    """The left half red (or gray), the right half white (or transparent)."""
    pixels = np.full((16, 16, 4), 255, np.uint8)
    pixels[:, :8, :3] = RED
    pixels[:, 8:, 3] = 0
    return Image.fromarray(pixels).convert(mode) if mode in ("RGBA", "LA") else Image.fromarray(pixels[..., :3])


KINDS = ["RGB.png", "RGBA.png", "P.png", "P.gif", "CMYK.jpg", "CMYK.tif", "RGBA.webp"]
GRAY_KINDS = ["L.png", "LA.png", "1.png", "I;16.png", "I;16.tif"]


@pytest.mark.parametrize("kind", [*KINDS, *GRAY_KINDS])
def test_images_of_every_mode(kind: str, tmp_path: Path) -> None:
    mode, path, gray = kind.split(".")[0], tmp_path / kind.replace(";", ""), kind in GRAY_KINDS
    if mode == "I;16":
        Image.fromarray(np.asarray(left_red("RGB").convert("L")).astype(np.uint16) * 257).save(path)
    else:
        left_red(mode).convert(mode).save(path, quality=100)
    pixels = decode(str(path), (8, 8, 1 if gray else 3)).astype(int)
    left = np.asarray(left_red("RGB").convert("L"))[0, 0] if gray else RED
    assert mode == "1" or np.abs(pixels[:, :3] - left).max() < 12
    assert (pixels[:, 5:] > 240).all()
    assert read_header(str(path)).gray == gray


def test_the_first_frame_of_an_animation_is_used(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert (decode(str(tmp_path / "moving.gif"), SHAPE)[0, 0] == (255, 0, 0)).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_respected(orientation: int, tmp_path: Path) -> None:
    upright = left_red("RGB").resize((24, 16))
    turn = Image.Transpose
    turns = [turn.FLIP_LEFT_RIGHT, turn.ROTATE_180, turn.FLIP_TOP_BOTTOM]  # for 2 and larger
    turns += [turn.TRANSPOSE, turn.ROTATE_90, turn.TRANSVERSE, turn.ROTATE_270]
    stored = upright.transpose(turns[orientation - 2]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "turned.jpg", exif=exif, quality=100)
    pixels = decode(str(tmp_path / "turned.jpg"), SHAPE).astype(int)
    assert np.abs(pixels[:, :3] - RED).max() < 40
    assert (pixels[:, 6:] > 200).all()
    assert read_header(str(tmp_path / "turned.jpg"))[:2] == (16, 24)


def test_a_large_photograph_read_at_a_fraction_looks_like_one_read_at_full_size(tmp_path: Path) -> None:
    from sklearn.datasets import load_sample_images

    photo = Image.fromarray(load_sample_images().images[0])
    photo.save(tmp_path / "photo.jpg", quality=95)
    whole = np.asarray(photo.resize((32, 32), Image.Resampling.LANCZOS)).astype(int)
    assert np.abs(decode(str(tmp_path / "photo.jpg"), (32, 32, 3)) - whole).mean() < 2


def test_a_panorama_is_read_without_a_warning(tmp_path: Path) -> None:
    Image.new("L", (20_000, 5000), 77).save(tmp_path / "wide.jpg")  # 100 megapixels, for which Pillow warns
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_header(str(tmp_path / "wide.jpg"))[:2] == (5000, 20_000)
        assert np.abs(decode(str(tmp_path / "wide.jpg"), (8, 8, 1)).astype(int) - 77).max() <= 1


def test_a_cropped_image_keeps_its_proportions(tmp_path: Path) -> None:
    pixels = np.zeros((10, 30, 3), dtype=np.uint8)
    pixels[:, 10:20] = 200  # the middle square
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert (decode(str(tmp_path / "wide.png"), (10, 10, 3), crop=True) == 200).all()
    assert decode(str(tmp_path / "wide.png"), (10, 10, 3)).min() == 0
    tall = Image.fromarray(pixels.transpose(1, 0, 2))
    tall.save(tmp_path / "tall.png")
    assert (decode(str(tmp_path / "tall.png"), (10, 10, 3), crop=True) == 200).all()
    assert decode(str(tmp_path / "tall.png"), (30, 10, 3), crop=True).shape == (30, 10, 3)
