"""An operation added from outside: usable by name, and without any effect on the default policies."""

from collections.abc import Iterator

import pytest
import torch
from real_images import photographs
from torch import Tensor

from rankingmatch.augment import (
    CTAUGMENT_NAMES,
    OPERATIONS,
    RANDAUGMENT_NAMES,
    CTAugment,
    Operation,
    Policy,
    RandAugment,
    augmented,
    register_operation,
)
from rankingmatch.core.errors import ConfigError


def brighten(images: Tensor, amount: Tensor) -> Tensor:
    return (images + amount.view(-1, 1, 1, 1)).clamp(max=255).byte()


@pytest.fixture
def brighten_operation() -> Iterator[str]:
    register_operation("brighten", Operation("filter", brighten, 10, 100, bins=5))
    yield "brighten"
    del OPERATIONS["brighten"]


def view(policy: Policy) -> Tensor:
    return augmented(policy, photographs(), torch.Generator().manual_seed(0))


def test_registering_an_operation_does_not_change_what_default_policies_draw() -> None:
    before = [view(RandAugment()), view(CTAugment())]
    OPERATIONS["toy"] = Operation("filter", brighten, 10, 100)
    try:
        after = [view(RandAugment()), view(CTAugment())]
    finally:
        del OPERATIONS["toy"]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_randaugment_draws_the_new_operation_if_it_is_named(brighten_operation: str) -> None:
    policy = RandAugment(probability=1.0, operation_names=(*RANDAUGMENT_NAMES, brighten_operation))
    draw = policy.draw(15_000, 8, 8, torch.Generator().manual_seed(0))
    assert torch.bincount(draw.operation.flatten(), minlength=15).min() > 1800  # 2000 expected
    assert not torch.equal(view(policy), view(RandAugment(probability=1.0)))


def test_a_policy_of_the_new_operation_alone_applies_it_with_its_probability(brighten_operation: str) -> None:
    images = torch.zeros(1000, 1, 4, 4, dtype=torch.uint8)
    policy = RandAugment(operations=1, probability=0.25, cutout=0, operation_names=(brighten_operation,))
    pixels = augmented(policy, images, torch.Generator().manual_seed(0))[:, 0, 0, 0]
    changed = pixels[pixels > 0]
    assert len(changed) / 1000 == pytest.approx(0.25, abs=0.05)
    assert changed.min() >= 10
    assert changed.max() < 100


def test_ctaugment_learns_rates_of_the_new_operation(brighten_operation: str) -> None:
    policy = CTAugment(operation_names=(*CTAUGMENT_NAMES, brighten_operation))
    draw = policy.draw_probe(2000, 8, 8, torch.Generator().manual_seed(0))
    policy.learn(draw, torch.zeros(2000))
    chosen = draw.bin[draw.operation == len(CTAUGMENT_NAMES)]
    times = torch.bincount(chosen, minlength=5)  # each image in a bin lowers its rate by a hundredth
    assert times.min() > 0
    assert policy.state_dict()[brighten_operation].tolist() == pytest.approx((0.99 ** times.double()).tolist())


def test_rates_saved_without_the_operation_are_restored_with_it(brighten_operation: str) -> None:
    saved = CTAugment(rates=torch.full((19, 17), 0.5, dtype=torch.float64)).state_dict()
    policy = CTAugment(operation_names=(brighten_operation, *CTAUGMENT_NAMES))
    policy.load_state_dict(saved)
    state = policy.state_dict()
    assert state.pop(brighten_operation).tolist() == [1.0] * 5
    assert all((rates == 0.5).all() for rates in state.values())


def test_a_name_that_is_taken_or_unknown_is_refused() -> None:
    with pytest.raises(ConfigError, match="already an operation 'rotate'"):
        register_operation("rotate", Operation("filter", brighten))
    with pytest.raises(ConfigError, match="unknown operation 'rotat'; did you mean 'rotate'"):
        RandAugment(operation_names=("rotat",))
    with pytest.raises(ConfigError, match="named twice"):
        CTAugment(operation_names=("rotate", "rotate"))
