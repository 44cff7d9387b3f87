"""Weak and strong views against per-image PIL pipelines, what their draws look like, and operations from outside."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pil_reference import PIL_CTA_OPERATIONS, PIL_OPERATIONS, by_pil, gray_square, weak_by_pil
from real_images import photographs
from torch import Tensor

from rankingmatch.augment import (
    CTAUGMENT_NAMES,
    CTAUGMENT_OPERATIONS,
    OPERATIONS,
    CTADraw,
    CTAugment,
    Operation,
    Policy,
    RandAugment,
    ViewSettings,
    Weak,
    augmented,
    cutout,
    register_operation,
    view_policies,
)
from rankingmatch.augment.policies import StrongDraw, WeakDraw
from rankingmatch.core.errors import ConfigError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("padding", [0, 4, 12])
def test_weak_view_is_flip_reflect_pad_and_crop(padding: int) -> None:
    images, policy = photographs(), Weak(padding=padding)
    draw = policy.draw(len(images), 32, 32, generator())
    expected = [weak_by_pil(image, draw, i, padding) for i, image in enumerate(images)]
    assert torch.equal(policy.apply(images, draw), torch.stack(expected))


@pytest.mark.parametrize("policy", [RandAugment(probability=1.0, cutout=10), CTAugment(cutout=10)])
def test_strong_view_equals_the_same_pipeline_in_pil(policy: RandAugment | CTAugment) -> None:
    images, learned = photographs().repeat(4, 1, 1, 1), isinstance(policy, CTAugment)
    draw: Any = policy.draw(len(images), 32, 32, generator(5))
    table, references = (CTAUGMENT_OPERATIONS, PIL_CTA_OPERATIONS) if learned else (OPERATIONS, PIL_OPERATIONS)
    assert not learned or (draw.operation == CTAUGMENT_NAMES.index("cutout")).any()
    result = policy.apply(images, draw)
    for i, image in enumerate(images):
        expected = weak_by_pil(image, draw.weak, i, 4)
        for k in range(2):
            name = policy.operation_names[int(draw.operation[i, k])]
            if name == "cutout":
                expected = gray_square(expected, draw.operation_center[i, k], int(draw.magnitude[i, k] * 16))
            magnitude = table[name].magnitude(draw.magnitude[i, k : k + 1])
            expected = by_pil(name, expected[None], magnitude, references)[0]
        assert torch.equal(result[i], gray_square(expected, draw.center[i], 10)), i


def test_draws_cover_their_ranges_evenly() -> None:
    draw = RandAugment(probability=1.0).draw(28_000, 32, 32, generator())
    counts = torch.bincount(draw.operation.flatten(), minlength=14)
    assert counts.min() > 3700  # 4000 expected
    assert counts.max() < 4300
    assert sorted(draw.weak.shift.unique().tolist()) == list(range(-4, 5))
    assert draw.weak.flipped.float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert sorted(draw.center.unique().tolist()) == list(range(32))
    assert draw.magnitude.mean().item() == pytest.approx(0.5, abs=0.01)
    assert not Weak(flip=False).draw(1000, 8, 8, generator()).flipped.any()


def test_an_operation_is_applied_with_the_given_probability() -> None:
    draw = RandAugment(probability=0.25).draw(20_000, 32, 32, generator())
    assert (draw.operation < 14).float().mean().item() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("policy", [RandAugment(), CTAugment()])
def test_a_divided_batch_is_augmented_as_the_whole(policy: Policy) -> None:
    images = photographs()
    draw: StrongDraw | CTADraw = policy.draw(24, 32, 32, generator())
    halves = []
    for part in (slice(0, 10), slice(10, 24)):
        weak = WeakDraw(*(value[part] for value in draw.weak))
        rest = {name: value[part] for name, value in draw._asdict().items() if name != "weak"}
        halves.append(policy.apply(images[part], draw._replace(weak=weak, **rest)))
    assert torch.equal(torch.cat(halves), policy.apply(images, draw))


def test_cutout_is_clipped_at_the_border() -> None:
    images = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    result = cutout(images, torch.tensor([[0, 0], [4, 4], [7, 7]]), 4)
    assert (result == 127).sum((1, 2, 3)).tolist() == [4, 16, 9]


def test_settings_make_the_policies() -> None:
    settings = ViewSettings(flip=False, padding=2, operations=3, operation_probability=1.0, cutout=5)
    weak = Weak(flip=False, padding=2)
    expected = {"weak": weak, "medium": RandAugment(weak, 1, 1.0, 5), "strong": RandAugment(weak, 3, 1.0, 5)}
    assert view_policies(settings) == expected
    strong = view_policies(ViewSettings(flip=False, padding=2, strong="ctaugment", operations=3, cutout=5))["strong"]
    assert isinstance(strong, CTAugment)
    assert (strong.weak, strong.operations, strong.cutout) == (weak, 3, 5)
    assert (strong.rates == 1).all()


@pytest.mark.parametrize("shape", [(4, 1, 8, 8), (4, 4, 5, 9), (0, 3, 8, 8), (1, 3, 1, 1)])
@pytest.mark.parametrize("operations", [0, 2])
def test_any_shape_of_batch_is_augmented(shape: tuple[int, ...], operations: int) -> None:
    images = torch.zeros(shape, dtype=torch.uint8)
    for policy in (RandAugment(operations=operations, cutout=2), CTAugment(operations=operations, cutout=2)):
        assert augmented(policy, images, generator()).shape == shape


# --- operations from outside ---------------------------------------------------------------------------------


def brighten(images: Tensor, amount: Tensor) -> Tensor:
    return (images + amount.view(-1, 1, 1, 1)).clamp(max=255).byte()


@pytest.fixture
def own() -> Iterator[str]:
    register_operation("brighten", Operation("filter", brighten, 10, 100, bins=5))
    yield "brighten"
    del OPERATIONS["brighten"]


def view(policy: Policy) -> Tensor:
    return augmented(policy, photographs(), generator())


def test_registering_an_operation_does_not_change_what_default_policies_draw(request: pytest.FixtureRequest) -> None:
    before = [view(RandAugment()), view(CTAugment())]
    request.getfixturevalue("own")
    after = [view(RandAugment()), view(CTAugment())]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_policy_of_the_new_operation_alone_applies_it_with_its_probability(own: str) -> None:
    images = torch.zeros(1000, 1, 4, 4, dtype=torch.uint8)
    policy = RandAugment(operations=1, probability=0.25, cutout=0, operation_names=(own,))
    pixels = augmented(policy, images, generator())[:, 0, 0, 0]
    changed = pixels[pixels > 0]
    assert len(changed) / 1000 == pytest.approx(0.25, abs=0.05)
    assert changed.min() >= 10
    assert changed.max() < 100


def test_ctaugment_learns_rates_of_the_new_operation_and_restores_those_without_it(own: str) -> None:
    policy = CTAugment(operation_names=(*CTAUGMENT_NAMES, own))
    draw = policy.draw_probe(2000, 8, 8, generator())
    policy.learn(draw, torch.zeros(2000))
    chosen = draw.bin[draw.operation == len(CTAUGMENT_NAMES)]
    times = torch.bincount(chosen, minlength=5)  # each image in a bin lowers its rate by a hundredth
    assert times.min() > 0
    assert policy.state_dict()[own].tolist() == pytest.approx((0.99 ** times.double()).tolist())
    policy.load_state_dict(CTAugment(rates=torch.full((19, 17), 0.5, dtype=torch.float64)).state_dict())
    state = policy.state_dict()
    assert state.pop(own).tolist() == [1.0] * 5
    assert all((rates == 0.5).all() for rates in state.values())


def test_a_name_that_is_taken_or_unknown_is_refused() -> None:
    with pytest.raises(ConfigError, match="'rotate'"):
        register_operation("rotate", Operation("filter", brighten))
    with pytest.raises(ConfigError, match="'rotat'; did you mean 'rotate'"):
        RandAugment(operation_names=("rotat",))
    with pytest.raises(ConfigError, match="named twice"):
        CTAugment(operation_names=("rotate", "rotate"))
