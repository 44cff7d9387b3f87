"""Weak and strong views against per-image PIL pipelines, and what their draws look like."""

import pytest
import torch
from pil_reference import by_pil, weak_by_pil
from real_images import from_pil, photographs, to_pil
from torch import Tensor

from rankingmatch.augment import (
    OPERATIONS,
    RANDAUGMENT_NAMES,
    RandAugment,
    ViewSettings,
    Weak,
    augmented,
    cutout,
    view_policies,
)
from rankingmatch.augment.policies import StrongDraw, WeakDraw


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("padding", [0, 4, 12])
def test_weak_view_is_flip_reflect_pad_and_crop(padding: int) -> None:
    images = photographs()
    policy = Weak(padding=padding)
    draw = policy.draw(len(images), 32, 32, generator())
    expected = torch.stack(
        [
            weak_by_pil(image, int(dy), int(dx), bool(flipped), padding)
            for image, (dy, dx), flipped in zip(images, draw.shift, draw.flipped, strict=True)
        ]
    )
    assert torch.equal(policy.apply(images, draw), expected)


def strong_by_pil(image: Tensor, draw: StrongDraw, i: int, policy: RandAugment) -> Tensor:
    dy, dx = draw.weak.shift[i].tolist()
    result = weak_by_pil(image, dy, dx, bool(draw.weak.flipped[i]), policy.weak.padding)
    for k in range(policy.operations):
        name = RANDAUGMENT_NAMES[int(draw.operation[i, k])]
        magnitude = OPERATIONS[name].magnitude(draw.magnitude[i, k : k + 1])
        result = by_pil(name, result[None], magnitude)[0]
    pixels, (y, x), half = to_pil(result), draw.center[i].tolist(), policy.cutout // 2
    pixels.paste((127, 127, 127), (x - half, y - half, x - half + policy.cutout, y - half + policy.cutout))
    return from_pil(pixels)


def test_strong_view_equals_the_same_pipeline_in_pil() -> None:
    images = photographs().repeat(4, 1, 1, 1)
    policy = RandAugment(probability=1.0)
    draw = policy.draw(len(images), 32, 32, generator(5))
    result = policy.apply(images, draw)
    for i, image in enumerate(images):
        assert torch.equal(result[i], strong_by_pil(image, draw, i, policy)), i


def test_draws_cover_their_ranges_evenly() -> None:
    draw = RandAugment(probability=1.0).draw(28_000, 32, 32, generator())
    counts = torch.bincount(draw.operation.flatten(), minlength=14)
    assert counts.min() > 3700  # 4000 expected
    assert counts.max() < 4300
    assert sorted(draw.weak.shift.unique().tolist()) == list(range(-4, 5))
    assert draw.weak.flipped.float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert draw.center.min() == 0
    assert draw.center.max() == 31
    assert draw.magnitude.mean().item() == pytest.approx(0.5, abs=0.01)


def test_an_operation_is_applied_with_the_given_probability() -> None:
    draw = RandAugment(probability=0.25).draw(20_000, 32, 32, generator())
    share = (draw.operation != RANDAUGMENT_NAMES.index("identity")).float().mean().item()
    assert share == pytest.approx(0.25 * 13 / 14, abs=0.01)


def test_posterize_draws_each_number_of_bits_equally_often() -> None:
    bits = OPERATIONS["posterize"].magnitude(torch.linspace(0, 0.9999, 5000)).long()
    assert torch.bincount(bits).tolist() == [0, 0, 0, 0, 1000, 1000, 1000, 1000, 1000]


def test_no_flip_means_no_flip() -> None:
    assert not Weak(flip=False).draw(1000, 8, 8, generator()).flipped.any()


def test_views_depend_on_the_generator_alone() -> None:
    images = photographs()
    first = augmented(RandAugment(), images, generator(1))
    assert torch.equal(first, augmented(RandAugment(), images, generator(1)))
    assert not torch.equal(first, augmented(RandAugment(), images, generator(2)))


def test_a_divided_batch_is_augmented_as_the_whole() -> None:
    images = photographs()
    policy = RandAugment()
    draw = policy.draw(24, 32, 32, generator())
    halves = []
    for part in (slice(0, 10), slice(10, 24)):
        weak = WeakDraw(*(value[part] for value in draw.weak))
        mine = StrongDraw(weak, draw.operation[part], draw.magnitude[part], draw.center[part])
        halves.append(policy.apply(images[part], mine))
    assert torch.equal(torch.cat(halves), policy.apply(images, draw))


def test_cutout_is_clipped_at_the_border() -> None:
    images = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    result = cutout(images, torch.tensor([[0, 0], [4, 4], [7, 7]]), 4)
    assert (result == 127).sum((1, 2, 3)).tolist() == [4, 16, 9]


def test_settings_make_the_policies() -> None:
    settings = ViewSettings(flip=False, padding=2, operations=3, operation_probability=1.0, cutout=5)
    weak = Weak(flip=False, padding=2)
    assert view_policies(settings) == {
        "weak": weak,
        "medium": RandAugment(weak, 1, 1.0, 5),
        "strong": RandAugment(weak, 3, 1.0, 5),
    }


@pytest.mark.parametrize("shape", [(4, 1, 8, 8), (4, 4, 5, 9), (0, 3, 8, 8), (1, 3, 1, 1)])
def test_any_shape_of_batch_is_augmented(shape: tuple[int, ...]) -> None:
    images = torch.zeros(shape, dtype=torch.uint8)
    assert augmented(RandAugment(cutout=2), images, generator()).shape == shape
