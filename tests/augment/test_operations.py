"""Each operation, image by image, against PIL on real photographs."""

import pytest
import torch
from PIL import ImageFilter
from pil_reference import PIL_OPERATIONS, by_pil
from real_images import from_pil, photographs, to_pil

from rankingmatch.augment import OPERATIONS, RANDAUGMENT_NAMES, apply_operations, quarter_turns
from rankingmatch.augment.filters import smooth


def test_the_fourteen_operations_of_the_paper_are_there() -> None:
    assert set(OPERATIONS) == set(PIL_OPERATIONS)
    assert len(OPERATIONS) == 14


@pytest.mark.parametrize("name", RANDAUGMENT_NAMES)
@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 32), (3, 7), (3, 96), (1, 8)])
def test_operation_equals_pil_bit_for_bit(name: str, channels: int, side: int) -> None:
    images = photographs(channels, side)
    unit = torch.rand(len(images), generator=torch.Generator().manual_seed(side), dtype=torch.float64)
    magnitudes = OPERATIONS[name].magnitude(unit)
    assert torch.equal(OPERATIONS[name](images, magnitudes), by_pil(name, images, magnitudes))


@pytest.mark.parametrize("name", RANDAUGMENT_NAMES)
@pytest.mark.parametrize("unit", [0.0, 0.5, 1.0])
def test_operation_equals_pil_at_the_ends_of_its_range(name: str, unit: float) -> None:
    images = photographs()
    magnitudes = OPERATIONS[name].magnitude(torch.full((len(images),), unit, dtype=torch.float64))
    magnitudes = magnitudes.clamp(max=8) if name == "posterize" else magnitudes
    assert torch.equal(OPERATIONS[name](images, magnitudes), by_pil(name, images, magnitudes))


@pytest.mark.parametrize("name", ["brightness", "color", "contrast", "sharpness"])
def test_enhancing_beyond_one_equals_pil(name: str) -> None:
    images = photographs()
    factors = torch.linspace(1.0, 3.0, len(images), dtype=torch.float64)
    assert torch.equal(OPERATIONS[name](images, factors), by_pil(name, images, factors))


@pytest.mark.parametrize("name", RANDAUGMENT_NAMES)
@pytest.mark.parametrize("value", [0, 128, 255])
def test_operation_on_a_constant_image_equals_pil(name: str, value: int) -> None:
    images = torch.full((5, 3, 9, 9), value, dtype=torch.uint8)
    magnitudes = OPERATIONS[name].magnitude(torch.linspace(0, 0.99, 5, dtype=torch.float64))
    assert torch.equal(OPERATIONS[name](images, magnitudes), by_pil(name, images, magnitudes))


@pytest.mark.parametrize("name", RANDAUGMENT_NAMES)
@pytest.mark.parametrize(("channels", "height", "width"), [(2, 8, 12), (4, 12, 8), (3, 1, 1), (5, 2, 3)])
def test_operation_takes_any_shape(name: str, channels: int, height: int, width: int) -> None:
    images = torch.randint(0, 256, (6, channels, height, width), dtype=torch.uint8)
    result = OPERATIONS[name](images, OPERATIONS[name].magnitude(torch.linspace(0, 0.99, 6)))
    assert result.shape == images.shape
    assert result.dtype == torch.uint8


def test_images_that_are_not_square_are_rotated_as_by_pil() -> None:
    images = photographs(3, 32)[:, :, :20, :]
    magnitudes = torch.linspace(-30, 30, len(images), dtype=torch.float64)
    assert torch.equal(OPERATIONS["rotate"](images, magnitudes), by_pil("rotate", images, magnitudes))


def test_smooth_equals_pil() -> None:
    images = photographs()
    expected = torch.stack([from_pil(to_pil(image).filter(ImageFilter.SMOOTH)) for image in images])
    assert torch.equal(smooth(images), expected)


def test_a_mixed_batch_equals_each_image_alone() -> None:
    images = photographs().repeat(3, 1, 1, 1)
    generator = torch.Generator().manual_seed(1)
    operation = torch.randint(14, (len(images),), generator=generator)
    unit = torch.rand(len(images), generator=generator, dtype=torch.float64)
    together = apply_operations(images, operation, unit, list(OPERATIONS.values()))
    for i in range(len(images)):
        name = RANDAUGMENT_NAMES[int(operation[i])]
        magnitude = OPERATIONS[name].magnitude(unit[i : i + 1])
        assert torch.equal(together[i : i + 1], by_pil(name, images[i : i + 1], magnitude)), name


def test_the_input_is_not_modified() -> None:
    images = photographs().clone()
    unit = torch.full((24,), 0.7, dtype=torch.float64)
    apply_operations(images, torch.arange(24) % 14, unit, list(OPERATIONS.values()))
    assert torch.equal(images, photographs())


def test_quarter_turns_equal_pil() -> None:
    images = photographs()
    turns = torch.arange(len(images)) % 4
    expected = [from_pil(to_pil(image).rotate(90 * turn)) for image, turn in zip(images, turns.tolist(), strict=True)]
    assert torch.equal(quarter_turns(images, turns), torch.stack(expected))


def test_half_turns_of_images_that_are_not_square_equal_pil() -> None:
    images = photographs()[:, :, :20, :]
    expected = torch.stack([from_pil(to_pil(image).rotate(180)) for image in images])
    assert torch.equal(quarter_turns(images, torch.full((len(images),), 2)), expected)
