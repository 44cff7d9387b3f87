"""Each operation of both policies, image by image, against PIL on real photographs."""

import pytest
import torch
from pil_reference import PIL_CTA_OPERATIONS, PIL_OPERATIONS, References, by_pil
from real_images import from_pil, photographs, to_pil
from torch import Tensor

from rankingmatch.augment import (
    CTAUGMENT_NAMES,
    CTAUGMENT_OPERATIONS,
    OPERATIONS,
    RANDAUGMENT_NAMES,
    Operation,
    apply_operations,
    quarter_turns,
)

Case = tuple[str, Operation, References]
ALL: list[Case] = [(name, OPERATIONS[name], PIL_OPERATIONS) for name in RANDAUGMENT_NAMES]
ALL += [(name, CTAUGMENT_OPERATIONS[name], PIL_CTA_OPERATIONS) for name in CTAUGMENT_NAMES]
ENHANCEMENTS = ("brightness", "color", "contrast", "sharpness")


@pytest.fixture(params=ALL, ids=lambda case: f"{case[0]}-{len(case[2])}")
def case(request: pytest.FixtureRequest) -> Case:
    chosen: Case = request.param
    return chosen


def test_the_operations_are_those_of_the_papers() -> None:
    assert set(RANDAUGMENT_NAMES) == set(PIL_OPERATIONS)
    assert set(CTAUGMENT_NAMES) == set(PIL_CTA_OPERATIONS)
    assert (len(RANDAUGMENT_NAMES), len(CTAUGMENT_NAMES)) == (14, 19)


@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 32), (3, 7), (3, 96), (1, 8)])
def test_operation_equals_pil_bit_for_bit(case: Case, channels: int, side: int) -> None:
    name, operation, references = case
    images = photographs(channels, side)
    unit = torch.rand(len(images), generator=torch.Generator().manual_seed(side), dtype=torch.float64)
    for units in (unit, 0 * unit, 0 * unit + 0.5, 0 * unit + 1):  # the ends of its range, too
        magnitudes = operation.magnitude(units)
        magnitudes = magnitudes.clamp(max=8) if name == "posterize" else magnitudes
        assert torch.equal(operation(images, magnitudes), by_pil(name, images, magnitudes, references))


@pytest.mark.parametrize("value", [0, 128, 255])
def test_operation_on_a_constant_image_equals_pil(case: Case, value: int) -> None:
    name, operation, references = case
    images = torch.full((5, 3, 9, 9), value, dtype=torch.uint8)
    magnitudes = operation.magnitude(torch.linspace(0, 0.99, 5, dtype=torch.float64))
    assert torch.equal(operation(images, magnitudes), by_pil(name, images, magnitudes, references))


@pytest.mark.parametrize(("channels", "height", "width"), [(2, 8, 12), (4, 12, 8), (4, 4, 5), (3, 1, 1), (5, 2, 3)])
def test_operation_takes_any_shape(case: Case, channels: int, height: int, width: int) -> None:
    _, operation, _ = case
    images = torch.randint(0, 256, (6, channels, height, width), dtype=torch.uint8)
    result = operation(images, operation.magnitude(torch.linspace(0, 0.99, 6)))
    assert (result.shape, result.dtype) == (images.shape, torch.uint8)


@pytest.mark.parametrize("name", ENHANCEMENTS)
def test_enhancements_of_ctaugment_also_amplify(name: str) -> None:
    """The factor is 0.1 + 1.9 · level, as in the authors' code: above 1 from level 9/19 on."""
    operation = CTAUGMENT_OPERATIONS[name]
    levels = torch.tensor([0.0, 9 / 19, 1.0], dtype=torch.float64)
    assert operation.magnitude(levels).tolist() == pytest.approx([0.1, 1.0, 2.0])


def test_posterize_keeps_each_number_of_bits_equally_often() -> None:
    bits = OPERATIONS["posterize"].magnitude(torch.linspace(0, 0.9999, 5000)).long()
    assert torch.bincount(bits).tolist() == [0, 0, 0, 0, 1000, 1000, 1000, 1000, 1000]
    bits = CTAUGMENT_OPERATIONS["posterize"].magnitude((torch.arange(8) + 0.99) / 8).long()
    assert bits.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_images_that_are_not_square_are_rotated_as_by_pil() -> None:
    images = photographs(3, 32)[:, :, :20, :]
    magnitudes = torch.linspace(-30, 30, len(images), dtype=torch.float64)
    assert torch.equal(OPERATIONS["rotate"](images, magnitudes), by_pil("rotate", images, magnitudes))
    expected = torch.stack([from_pil(to_pil(image).rotate(180)) for image in images])
    assert torch.equal(quarter_turns(images, torch.full((len(images),), 2)), expected)


def test_quarter_turns_equal_pil() -> None:
    images = photographs()
    turns = torch.arange(len(images)) % 4
    expected = [from_pil(to_pil(image).rotate(90 * turn)) for image, turn in zip(images, turns.tolist(), strict=True)]
    assert torch.equal(quarter_turns(images, turns), torch.stack(expected))


def test_a_mixed_batch_equals_each_image_alone_and_the_input_is_not_modified() -> None:
    images = photographs().repeat(3, 1, 1, 1)
    generator = torch.Generator().manual_seed(1)
    operation = torch.randint(14, (len(images),), generator=generator)
    unit = torch.rand(len(images), generator=generator, dtype=torch.float64)
    together = apply_operations(images, operation, unit, list(OPERATIONS.values()))
    assert torch.equal(images, photographs().repeat(3, 1, 1, 1))

    def alone(i: int) -> Tensor:
        name = RANDAUGMENT_NAMES[int(operation[i])]
        return by_pil(name, images[i : i + 1], OPERATIONS[name].magnitude(unit[i : i + 1]))

    assert torch.equal(together, torch.cat([alone(i) for i in range(len(images))]))
