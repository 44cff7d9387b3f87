"""CTAugment: its operations against PIL, its draws, and how its rates learn."""

import math

import pytest
import torch
from pil_reference import PIL_CTA_OPERATIONS, by_pil, weak_by_pil
from real_images import from_pil, photographs, to_pil
from torch import Tensor

from rankingmatch.augment import (
    CTAUGMENT_NAMES,
    CTAUGMENT_OPERATIONS,
    CTADraw,
    CTAugment,
    ViewSettings,
    Weak,
    augmented,
    view_policies,
)
from rankingmatch.augment.ctaugment import bin_weights
from rankingmatch.augment.policies import WeakDraw

BINS = 17
BINS_OF = torch.tensor([operation.bins for operation in CTAUGMENT_OPERATIONS.values()])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def learned_rates(seed: int = 0) -> Tensor:
    return torch.rand(len(CTAUGMENT_NAMES), BINS, generator=generator(seed), dtype=torch.float64)


# --- operations ---------------------------------------------------------------------------------------------


def test_the_operations_are_the_14_of_randaugment_and_5_more() -> None:
    assert set(CTAUGMENT_OPERATIONS) == set(PIL_CTA_OPERATIONS)
    assert len(CTAUGMENT_OPERATIONS) == 19


@pytest.mark.parametrize("name", CTAUGMENT_NAMES)
@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 32), (3, 7), (1, 8)])
def test_operation_equals_pil_bit_for_bit(name: str, channels: int, side: int) -> None:
    images = photographs(channels, side)
    unit = torch.rand(len(images), generator=generator(side), dtype=torch.float64)
    magnitudes = CTAUGMENT_OPERATIONS[name].magnitude(unit)
    expected = by_pil(name, images, magnitudes, PIL_CTA_OPERATIONS)
    assert torch.equal(CTAUGMENT_OPERATIONS[name](images, magnitudes), expected)


@pytest.mark.parametrize("name", CTAUGMENT_NAMES)
@pytest.mark.parametrize("unit", [0.0, 0.5, 1.0])
def test_operation_equals_pil_at_the_ends_of_its_range(name: str, unit: float) -> None:
    images = photographs()
    magnitudes = CTAUGMENT_OPERATIONS[name].magnitude(torch.full((len(images),), unit, dtype=torch.float64))
    magnitudes = magnitudes.clamp(max=8) if name == "posterize" else magnitudes
    expected = by_pil(name, images, magnitudes, PIL_CTA_OPERATIONS)
    assert torch.equal(CTAUGMENT_OPERATIONS[name](images, magnitudes), expected)


@pytest.mark.parametrize("name", ["brightness", "color", "contrast", "sharpness"])
def test_enhancements_also_amplify(name: str) -> None:
    """The factor is 0.1 + 1.9 · level, as in the authors' code: above 1 from level 9/19 on."""
    operation = CTAUGMENT_OPERATIONS[name]
    levels = torch.tensor([0.0, 9 / 19, 1.0], dtype=torch.float64)
    assert operation.magnitude(levels).tolist() == pytest.approx([0.1, 1.0, 2.0])
    images = photographs()[:3]
    deviation = operation(images, operation.magnitude(levels)).double().flatten(1)
    if name == "brightness":
        assert deviation.mean(1)[2] > images[2].double().mean()
    elif name == "contrast":
        assert deviation.std(1)[2] > images[2].double().std()
    assert torch.equal(operation(images, torch.ones(3)), images)


@pytest.mark.parametrize("name", CTAUGMENT_NAMES)
@pytest.mark.parametrize(("channels", "height", "width"), [(2, 8, 12), (4, 4, 5), (3, 1, 1), (5, 2, 3)])
def test_operation_takes_any_shape(name: str, channels: int, height: int, width: int) -> None:
    images = torch.randint(0, 256, (6, channels, height, width), dtype=torch.uint8)
    result = CTAUGMENT_OPERATIONS[name](images, CTAUGMENT_OPERATIONS[name].magnitude(torch.linspace(0, 0.99, 6)))
    assert (result.shape, result.dtype) == (images.shape, torch.uint8)


def pasted(image: Tensor, center: Tensor, side: int) -> Tensor:
    pixels, (y, x) = to_pil(image), center.tolist()
    top, left = y - side // 2, x - side // 2
    pixels.paste((127, 127, 127), (left, top, left + side, top + side))
    return from_pil(pixels)


def test_strong_view_equals_the_same_pipeline_in_pil() -> None:
    images = photographs().repeat(4, 1, 1, 1)
    policy = CTAugment(cutout=10)
    draw = policy.draw(len(images), 32, 32, generator(5))
    assert (draw.operation == CTAUGMENT_NAMES.index("cutout")).any()
    result, probed = policy.apply(images, draw), policy.apply_probe(images, draw)
    for i, image in enumerate(images):
        dy, dx = draw.weak.shift[i].tolist()
        expected = weak_by_pil(image, dy, dx, bool(draw.weak.flipped[i]), 4)
        for k in range(2):
            name = CTAUGMENT_NAMES[int(draw.operation[i, k])]
            if name == "cutout":
                expected = pasted(expected, draw.operation_center[i, k], int(draw.magnitude[i, k] * 16))
            magnitude = CTAUGMENT_OPERATIONS[name].magnitude(draw.magnitude[i, k : k + 1])
            expected = by_pil(name, expected[None], magnitude, PIL_CTA_OPERATIONS)[0]
        assert torch.equal(probed[i], expected), i
        assert torch.equal(result[i], pasted(expected, draw.center[i], 10)), i


# --- draws --------------------------------------------------------------------------------------------------


def naive_weights(rates: list[float]) -> list[float]:
    weights = [rate + 0.01 for rate in rates]
    weights = [weight / max(weights) for weight in weights]
    return [0.0 if weight < 0.8 else weight for weight in weights]


def test_weights_equal_their_definition() -> None:
    rates = learned_rates()
    weights = bin_weights(rates, BINS_OF)
    for number, bins in enumerate(BINS_OF.tolist()):
        expected = naive_weights(rates[number, :bins].tolist()) + [0.0] * (BINS - bins)
        assert weights[number].tolist() == pytest.approx(expected)


def test_posterize_has_eight_bins_the_identity_one_and_all_others_seventeen() -> None:
    bins = dict(zip(CTAUGMENT_NAMES, BINS_OF.tolist(), strict=True))
    assert (bins.pop("posterize"), bins.pop("identity")) == (8, 1)
    assert set(bins.values()) == {17}
    bits = CTAUGMENT_OPERATIONS["posterize"].magnitude((torch.arange(8) + 0.99) / 8).long()
    assert bits.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_bins_are_drawn_by_their_weights_and_magnitudes_lie_in_their_bin() -> None:
    policy = CTAugment(rates=learned_rates(3))
    draw = policy.draw(60_000, 8, 8, generator())
    operation, number = draw.operation.flatten(), draw.bin.flatten()
    weights = bin_weights(policy.rates, BINS_OF)
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


def test_views_depend_on_the_generator_and_the_rates_alone() -> None:
    images = photographs()
    first = augmented(CTAugment(), images, generator(1))
    assert torch.equal(first, augmented(CTAugment(), images, generator(1)))
    assert not torch.equal(first, augmented(CTAugment(), images, generator(2)))
    assert not torch.equal(first, augmented(CTAugment(rates=learned_rates()), images, generator(1)))


def test_a_divided_batch_is_augmented_as_the_whole() -> None:
    images, policy = photographs(), CTAugment()
    draw = policy.draw(24, 32, 32, generator())
    halves = []
    for part in (slice(0, 10), slice(10, 24)):
        weak = WeakDraw(*(value[part] for value in draw.weak))
        rest = (draw.operation, draw.bin, draw.magnitude, draw.operation_center, draw.center)
        halves.append(policy.apply(images[part], CTADraw(weak, *(value[part] for value in rest))))
    assert torch.equal(torch.cat(halves), policy.apply(images, draw))


@pytest.mark.parametrize("shape", [(4, 1, 8, 8), (4, 4, 5, 9), (0, 3, 8, 8), (1, 3, 1, 1)])
@pytest.mark.parametrize("operations", [0, 2])
def test_any_shape_of_batch_is_augmented(shape: tuple[int, ...], operations: int) -> None:
    images = torch.zeros(shape, dtype=torch.uint8)
    assert augmented(CTAugment(operations=operations, cutout=2), images, generator()).shape == shape


def test_the_settings_select_ctaugment() -> None:
    settings = ViewSettings(flip=False, padding=2, strong="ctaugment", operations=3, cutout=5)
    strong = view_policies(settings)["strong"]
    assert isinstance(strong, CTAugment)
    assert (strong.weak, strong.operations, strong.cutout) == (Weak(flip=False, padding=2), 3, 5)
    assert (strong.rates == 1).all()


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


def test_a_bin_under_which_nothing_is_recognized_is_no_longer_used() -> None:
    policy = CTAugment(operations=1)
    invert = CTAUGMENT_NAMES.index("invert")
    hard = (invert, 16)
    draw = policy.draw_probe(1, 8, 8, generator())
    draw = draw._replace(operation=torch.tensor([[hard[0]]]), bin=torch.tensor([[hard[1]]]))
    steps = 0
    while bin_weights(policy.rates, BINS_OF)[hard] > 0:
        policy.learn(draw, torch.zeros(1))
        steps += 1
    assert steps == 23  # (0.99^23 + 0.01) / 1.01 < 0.8 for the first time
    assert (bin_weights(policy.rates, BINS_OF)[invert, :16] == 1).all()


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
    for name, rates in restored.state_dict().items():
        assert torch.equal(rates, state[name])
    images = photographs()
    assert torch.equal(augmented(policy, images, generator()), augmented(restored, images, generator()))


def test_a_saved_state_is_a_copy() -> None:
    policy = CTAugment()
    policy.state_dict()["rotate"].zero_()
    assert (policy.rates == 1).all()


def test_the_matrix_of_older_checkpoints_is_restored() -> None:
    policy, matrix = CTAugment(), torch.ones(19, 17, dtype=torch.float64)
    matrix[torch.arange(17) < BINS_OF[:, None]] = 0.5  # beyond an operation's own bins, rates were always 1
    policy.load_state_dict({"rates": matrix})
    assert torch.equal(policy.rates, matrix)


def test_operations_unknown_to_either_side_do_not_prevent_restoring() -> None:
    few = CTAugment(operation_names=("rotate", "posterize"), rates=torch.full((2, 17), 0.25, dtype=torch.float64))
    more = CTAugment(operation_names=("posterize", "invert"))
    more.load_state_dict(few.state_dict())
    assert more.state_dict()["posterize"].tolist() == [0.25] * 8
    assert more.state_dict()["invert"].tolist() == [1.0] * 17


@pytest.mark.parametrize(
    "state", [{"rotate": torch.ones(16)}, {"rates": torch.ones(18, 17)}, {"rates": torch.ones(())}]
)
def test_rates_of_another_shape_are_refused(state: dict[str, Tensor]) -> None:
    policy = CTAugment(rates=learned_rates())
    before = policy.rates.clone()
    with pytest.raises(ValueError, match="shape"):
        policy.load_state_dict(state)
    assert torch.equal(policy.rates, before)
