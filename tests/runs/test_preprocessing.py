"""One description of how files are read, in the model, the ONNX file and the example, which give the same pixels."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from real_images import photographs, to_pil
from safetensors import safe_open
from tiny import tiny_settings, tiny_split, tiny_state

from rankingmatch.data.decode import UnreadableError, decode, preprocessing
from rankingmatch.runs.export import Deployed, metadata
from rankingmatch.runs.model import ModelInfo, save_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("onnx_inference", ROOT / "examples/onnx_inference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Photographs in many sizes, formats and modes, large JPEGs among them."""
    folder = tmp_path_factory.mktemp("files")
    color, gray = to_pil(photographs(side=48)[3]), to_pil(photographs(1, 48)[5])
    rotated = Image.Exif()
    rotated[0x0112] = 6
    large = color.resize((1100, 700), Image.Resampling.BICUBIC)
    kinds = {
        "large.jpg": (large, {}),
        "larger.jpg": (large.resize((3000, 2100)), {}),
        "progressive.jpg": (large, {"progressive": True, "exif": rotated}),
        "cmyk.jpg": (large.convert("CMYK"), {}),
        "gray.jpg": (gray.resize((900, 640)), {}),
        "plain.png": (color, {}),
        "same.png": (color.resize((24, 24)), {}),
        "wide.png": (color.resize((500, 31)), {}),
        "palette.png": (color.convert("P"), {"transparency": 3}),
        "transparent.png": (color.convert("RGBA"), {}),
        "alpha.png": (gray.convert("LA"), {}),
        "bits.png": (gray.convert("1"), {}),
        "sixteen.png": (gray.convert("I;16"), {}),
        "sixteen.tif": (gray.convert("I;16"), {}),
        "photo.webp": (large, {}),
        "photo.gif": (color.convert("P"), {}),
        "photo.bmp": (color, {}),
    }
    kinds["transparent.png"][0].putalpha(gray)
    for name, (image, options) in kinds.items():
        image.save(folder / name, **options)  # type: ignore[arg-type]
    return sorted(folder.iterdir())


@pytest.mark.parametrize("shape", [(24, 24, 3), (24, 24, 1), (20, 36, 3)])
@pytest.mark.parametrize("crop", [False, True])
def test_the_example_reads_every_file_as_training_does(
    shape: tuple[int, int, int], crop: bool, example: ModuleType, files: list[Path]
) -> None:
    how = json.loads(json.dumps(preprocessing(shape, crop=crop)))
    for file in files:
        assert np.array_equal(example.read(str(file), how), decode(str(file), shape, crop=crop)), file.name


def test_the_example_refuses_a_description_that_it_does_not_know(example: ModuleType, files: list[Path]) -> None:
    how = {**preprocessing((24, 24, 3), crop=False), "order": ["resize"]}
    with pytest.raises(SystemExit, match="another version"):
        example.read(str(files[0]), how)


def test_both_refuse_gray_levels_that_are_floats(example: ModuleType, tmp_path: Path) -> None:
    Image.new("F", (24, 24)).save(tmp_path / "float.tif")
    with pytest.raises(UnreadableError, match="has floats"):
        decode(str(tmp_path / "float.tif"), (24, 24, 1))
    with pytest.raises(SystemExit, match="has floats"):
        example.read(str(tmp_path / "float.tif"), preprocessing((24, 24, 1), crop=False))


@pytest.mark.parametrize("crop", [False, True])
def test_the_model_and_the_onnx_file_have_the_same_description(crop: bool, tmp_path: Path) -> None:
    model = tiny_state(tiny_split(), tiny_settings()).ema
    info = ModelInfo("wrn-10-1", ("a", "b", "c"), 1, 8, 8, crop=crop)
    save_model(tmp_path / "model.safetensors", model, info)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        saved = json.loads(file.metadata()["rankingmatch"])["preprocessing"]
    exported = json.loads(metadata(Deployed(model, "uint8", logits=False), info)["preprocessing"])
    assert saved == exported == preprocessing((8, 8, 1), crop=crop)
