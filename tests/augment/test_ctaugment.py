"""CTAugment: its draws, and how its rates learn."""

import math

import pytest
import torch
from real_images import photographs
from torch import Tensor

from rankingmatch.augment import CTAUGMENT_NAMES, CTAUGMENT_OPERATIONS, CTAugment, augmented
from rankingmatch.augment.policies import bin_weights

BINS = 17
BINS_OF = torch.tensor([operation.bins for operation in CTAUGMENT_OPERATIONS.values()])
OWN = torch.arange(BINS) < BINS_OF[:, None]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def learned_rates(seed: int = 0) -> Tensor:
    return torch.rand(len(CTAUGMENT_NAMES), BINS, generator=generator(seed), dtype=torch.float64)


# --- draws --------------------------------------------------------------------------------------------------


def naive_weights(rates: list[float]) -> list[float]:
    weights = [rate + 0.01 for rate in rates]
    weights = [weight / max(weights) for weight in weights]
    return [0.0 if weight < 0.8 else weight for weight in weights]


def test_weights_equal_their_definition() -> None:
    rates = learned_rates()
    weights = bin_weights(rates, OWN)
    for number, bins in enumerate(BINS_OF.tolist()):
        expected = naive_weights(rates[number, :bins].tolist()) + [0.0] * (BINS - bins)
        assert weights[number].tolist() == pytest.approx(expected)


def test_posterize_has_eight_bins_the_identity_one_and_all_others_seventeen() -> None:
    bins = dict(zip(CTAUGMENT_NAMES, BINS_OF.tolist(), strict=True))
    assert (bins.pop("posterize"), bins.pop("identity")) == (8, 1)
    assert set(bins.values()) == {17}


def test_bins_are_drawn_by_their_weights_and_magnitudes_lie_in_their_bin() -> None:
    policy = CTAugment(rates=learned_rates(3))
    draw = policy.draw(60_000, 8, 8, generator())
    operation, number = draw.operation.flatten(), draw.bin.flatten()
    weights = bin_weights(policy.rates, OWN)
    assert (weights[operation, number] > 0).all()
    assert torch.equal((draw.magnitude.flatten() * BINS_OF[operation]).long(), number)
    for index in range(len(CTAUGMENT_NAMES)):
        here = number[operation == index]
        assert len(here) == pytest.approx(120_000 / 19, rel=0.06)
        share = torch.bincount(here, minlength=BINS) / len(here)
        expected = weights[index] / weights[index].sum()
        torch.testing.assert_close(share.double(), expected, rtol=0, atol=0.03)


def test_probes_use_all_bins_equally_often_whatever_was_learned() -> None:
    draw = CTAugment(rates=learned_rates(3)).draw_probe(60_000, 8, 8, generator())
    for index, bins in enumerate(BINS_OF.tolist()):
        here = draw.bin[draw.operation == index]
        assert torch.bincount(here).tolist() == pytest.approx([len(here) / bins] * bins, rel=0.2)


# --- learning -----------------------------------------------------------------------------------------------


def test_every_image_moves_the_rates_of_its_bins_one_after_the_other() -> None:
    """k uses of a bin with the proximities p_1 … p_k: 0.99^k rate + 0.01 Σ_j 0.99^(k - j) p_j."""
    policy = CTAugment(rates=learned_rates())
    before = policy.rates.clone()
    # Few operations and many images, so that bins are shared, also by the two operations of one image.
    draw = policy.draw_probe(40, 8, 8, generator())
    draw = draw._replace(operation=draw.operation % 3, bin=draw.bin % 4)
    proximity = torch.rand(40, generator=generator(1))
    policy.learn(draw, proximity)
    most = 0
    for operation in range(len(CTAUGMENT_NAMES)):
        for number in range(BINS):
            seen = [
                proximity[i].item()
                for i in range(40)
                for k in range(2)
                if draw.operation[i, k] == operation and draw.bin[i, k] == number
            ]
            expected = 0.99 ** len(seen) * before[operation, number].item()
            expected += sum(0.01 * 0.99 ** (len(seen) - 1 - j) * value for j, value in enumerate(seen))
            assert policy.rates[operation, number].item() == pytest.approx(expected, rel=1e-12)
            most = max(most, len(seen))
    assert most > 3


def test_a_diverged_model_leaves_finite_rates() -> None:
    policy = CTAugment()
    policy.learn(policy.draw_probe(9, 8, 8, generator()), torch.full((9,), math.nan))
    assert policy.rates.isfinite().all()
    augmented(policy, torch.zeros(9, 1, 8, 8, dtype=torch.uint8), generator())


# --- saving -------------------------------------------------------------------------------------------------


def test_rates_are_saved_by_name_and_restored() -> None:
    policy, restored = CTAugment(rates=learned_rates()), CTAugment()
    state = policy.state_dict()
    assert {name: len(rates) for name, rates in state.items()} == dict(
        zip(CTAUGMENT_NAMES, BINS_OF.tolist(), strict=True)
    )
    restored.load_state_dict(state)
    policy.state_dict()["rotate"].zero_()  # a copy
    for name, rates in restored.state_dict().items():
        assert torch.equal(rates, state[name])
    images = photographs()
    assert torch.equal(augmented(policy, images, generator()), augmented(restored, images, generator()))


def test_operations_unknown_to_either_side_do_not_prevent_restoring() -> None:
    few = CTAugment(operation_names=("rotate", "posterize"), rates=torch.full((2, 17), 0.25, dtype=torch.float64))
    more = CTAugment(operation_names=("posterize", "invert"))
    more.load_state_dict(few.state_dict())
    assert more.state_dict()["posterize"].tolist() == [0.25] * 8
    assert more.state_dict()["invert"].tolist() == [1.0] * 17


def test_rates_of_another_shape_are_refused() -> None:
    policy = CTAugment(rates=learned_rates())
    before = policy.rates.clone()
    with pytest.raises(ValueError, match="'rotate'"):
        policy.load_state_dict({"rotate": torch.ones(16)})
    assert torch.equal(policy.rates, before)
