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


@pytest.mark.parametrize("kind", ["RGB.png", "RGBA.png", "P.png", "P.gif", "CMYK.jpg", "CMYK.tif", "RGBA.webp"])
def test_color_images_of_every_mode(kind: str, tmp_path: Path) -> None:
    mode, path = kind.split(".")[0], tmp_path / kind
    left_red(mode).convert(mode).save(path, quality=100)
    pixels = decode(str(path), SHAPE).astype(int)
    assert np.abs(pixels[:, :3] - RED).max() < 12
    assert (pixels[:, 5:] > 240).all()
    assert not read_header(str(path)).gray


@pytest.mark.parametrize("kind", ["L.png", "LA.png", "1.png", "I;16.png", "I;16.tif"])
def test_grayscale_images_of_every_mode(kind: str, tmp_path: Path) -> None:
    mode, path = kind.split(".")[0], tmp_path / kind.replace(";", "")
    gray = left_red(mode).convert("LA" if mode == "LA" else "L")
    if mode == "I;16":
        Image.fromarray(np.asarray(gray).astype(np.uint16) * 257).save(path)
    else:
        gray.convert(mode).save(path)
    pixels = decode(str(path), (8, 8, 1)).astype(int)
    expected = np.asarray(left_red("RGB").convert("L"))[0, 0]
    assert (pixels[:, 5:] > 240).all()
    if mode != "1":
        assert np.abs(pixels[:, :3] - expected).max() < 12
    assert read_header(str(path)).gray


def test_the_first_frame_of_an_animation_is_used(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert (decode(str(tmp_path / "moving.gif"), SHAPE)[0, 0] == (255, 0, 0)).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_respected(orientation: int, tmp_path: Path) -> None:
    upright = left_red("RGB").resize((24, 16))
    turns = {
        **{2: [Image.Transpose.FLIP_LEFT_RIGHT], 3: [Image.Transpose.ROTATE_180], 4: [Image.Transpose.FLIP_TOP_BOTTOM]},
        **{5: [Image.Transpose.TRANSPOSE], 6: [Image.Transpose.ROTATE_90], 7: [Image.Transpose.TRANSVERSE]},
        8: [Image.Transpose.ROTATE_270],
    }
    stored = upright
    for turn in turns.get(orientation, []):
        stored = stored.transpose(turn)
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
