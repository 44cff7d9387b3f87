"""The losses equal the paper's formulas, have correct and finite gradients, and do not depend on the row order."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import naive
import naive_methods
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rankingmatch.losses import (
    Similarity,
    batch_all_triplet,
    batch_hard_triplet,
    batch_mean_triplet,
    brier,
    contrastive,
    entropy,
    kl_divergence,
    l2_normalized,
    masked_brier,
    masked_cross_entropy,
    soft_cross_entropy,
    tsa_cross_entropy,
)

Loss = Callable[[Tensor, Tensor], Tensor]
Oracle = Callable[[naive.Rows, list[int]], float]


def every_variant() -> list[tuple[str, Loss, Oracle]]:
    """Each loss with each combination of its options, beside its oracle."""
    variants: list[tuple[str, Loss, Oracle]] = []
    for soft, l2, squared in product((True, False), repeat=3):
        options: dict[str, Any] = {"margin": 0.3, "soft_margin": soft, "l2_normalize": l2, "squared": squared}
        name = f"soft={soft},l2={l2},squared={squared}"
        same: dict[str, Any] = {"m": 0.3, "soft": soft, "l2": l2, "squared": squared}
        variants.append((f"all,{name}", partial(batch_all_triplet, **options), partial(naive.batch_all, **same)))
        for true_triplets in (False, True):
            loss = partial(batch_hard_triplet, true_triplets=true_triplets, **options)
            oracle = partial(naive.batch_hard, true_triplets=true_triplets, **same)
            variants.append((f"hard,{name},true_triplets={true_triplets}", loss, oracle))
        for true_mean in (False, True):
            loss = partial(batch_mean_triplet, true_mean=true_mean, **options)
            oracle = partial(naive.batch_mean, true_mean=true_mean, **same)
            variants.append((f"mean,{name},true_mean={true_mean}", loss, oracle))
    similarities: tuple[Similarity, ...] = ("cosine", "dot")
    for l2, similarity in product((True, False), similarities):
        loss = partial(contrastive, temperature=0.7, l2_normalize=l2, similarity=similarity)
        oracle = partial(naive.contrastive, temperature=0.7, l2=l2, similarity=similarity)
        variants.append((f"contrastive,l2={l2},{similarity}", loss, oracle))
    return variants


VARIANTS = [pytest.param(loss, oracle, id=name) for name, loss, oracle in every_variant()]
LOSSES = [pytest.param(loss, id=name) for name, loss, _ in every_variant()]
DEFAULTS = [batch_all_triplet, batch_hard_triplet, batch_mean_triplet, contrastive]


def random_rows(n: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return rows, torch.randint(classes, (n,), generator=generator)


@pytest.mark.parametrize(("loss", "oracle"), VARIANTS)
@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2, 0, 1, 2], [0, 0, 0, 0, 0, 0, 0, 1, 2], list(range(9))])
def test_loss_equals_the_formula(loss: Loss, oracle: Oracle, labels: list[int]) -> None:
    rows, _ = random_rows(9, 3)
    value = loss(rows, torch.tensor(labels)).item()
    assert value == pytest.approx(oracle(rows.tolist(), labels), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize(("loss", "oracle"), VARIANTS)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(-4, 4), min_size=3, max_size=3)), max_size=8))
def test_loss_equals_the_formula_on_any_batch(loss: Loss, oracle: Oracle, batch: list[tuple[int, list[int]]]) -> None:
    # Small integers make ties, zero rows and repeated rows common.
    labels = [label for label, _ in batch]
    rows = [[float(v) for v in row] for _, row in batch]
    tensor = torch.tensor(rows, dtype=torch.float64).reshape(len(rows), 3)
    value = loss(tensor, torch.tensor(labels, dtype=torch.long)).item()
    assert value == pytest.approx(oracle(rows, labels), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_the_derivative(loss: Loss) -> None:
    rows, labels = random_rows(8, 3, seed=1)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), rows.requires_grad_())


@pytest.mark.parametrize("loss", LOSSES)
@given(st.permutations(range(10)))
@settings(max_examples=10, deadline=None)
def test_row_order_and_class_names_do_not_matter(loss: Loss, order: list[int]) -> None:
    rows, labels = random_rows(10, 3, seed=2)
    renamed = torch.tensor([17, -5, 4])[labels]
    assert loss(rows[order], renamed[order]).item() == pytest.approx(loss(rows, labels).item(), rel=1e-12)


MASKS = {"some": [0, 1, 3, 4, 6, 9], "one of each class": [0, 1, 3], "one": [4], "none": [], "all": list(range(10))}


def value_and_gradient(loss: Callable[..., Tensor], rows: Tensor, *others: Tensor, **options: Any) -> tuple[Any, Any]:
    rows = rows.detach().clone().requires_grad_()
    value = loss(rows, *others, **options)
    value.backward()
    return value.item(), rows.grad


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kept", MASKS.values(), ids=MASKS)
def test_a_mask_is_the_same_as_selecting_rows(loss: Callable[..., Tensor], kept: list[int]) -> None:
    rows, _ = random_rows(10, 3, seed=2)
    labels, mask = torch.tensor([0, 1, 1, 2, 0, 2, 1, 0, 2, 0]), torch.zeros(10, dtype=torch.bool)
    mask[kept] = True
    expected, gradient = value_and_gradient(loss, rows[mask], labels[mask])
    value, whole = value_and_gradient(loss, rows, labels, mask=mask)
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-15)
    torch.testing.assert_close(whole[mask], gradient)
    assert not whole[~mask].any()
    single, _ = value_and_gradient(loss, rows.float(), labels, mask=mask)
    assert single == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("parts", [2, 3, 12])
def test_the_parts_of_a_loss_by_anchors_add_up(loss: Callable[..., Tensor], masked: bool, parts: int) -> None:
    rows, labels = random_rows(11, 3, seed=2)
    mask = torch.arange(11) % 4 != 0 if masked else None
    expected, gradient = value_and_gradient(loss, rows, labels, mask=mask)
    shares = [
        value_and_gradient(loss, rows, labels, mask=mask, anchors=torch.arange(part, 11, parts))
        for part in range(parts)
    ]
    assert sum(value for value, _ in shares) == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(sum(part for _, part in shares), gradient)


@pytest.mark.parametrize("loss", DEFAULTS)
def test_with_l2_normalization_the_scale_of_a_row_does_not_matter(loss: Loss) -> None:
    rows, labels = random_rows(10, 3)
    scaled = rows * torch.logspace(-30, 30, 10, dtype=torch.float64)[:, None]
    assert loss(scaled, labels).item() == pytest.approx(loss(rows, labels).item(), rel=1e-9)


DEGENERATE = {
    "identical rows": (torch.ones(6, 3), [0, 0, 1, 1, 2, 2]),
    "zero rows": (torch.zeros(4, 3), [0, 0, 1, 1]),
    "single class": (torch.randn(5, 3), [1] * 5),
    "single row": (torch.randn(1, 3), [0]),
    "two rows of two classes": (torch.randn(2, 3), [0, 1]),
    "empty batch": (torch.zeros(0, 3), []),
    "logits of 1e4": (torch.randn(6, 3).sign() * 1e4, [0, 0, 1, 1, 2, 2]),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", DEGENERATE)
def test_value_and_gradient_stay_finite(loss: Loss, case: str) -> None:
    rows, labels = DEGENERATE[case]
    rows = rows.clone().requires_grad_()
    value = loss(rows, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert value.ndim == 0
    assert torch.isfinite(value)
    assert rows.grad is not None
    assert torch.isfinite(rows.grad).all()


def test_batch_all_equals_a_dense_tensor_of_triplets() -> None:
    rows, labels = random_rows(90, 4, seed=3)
    rows.requires_grad_()
    distance = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    gap = 0.5 + distance[:, :, None] - distance[:, None, :]
    same = labels[:, None] == labels
    positive = same & ~torch.eye(90, dtype=torch.bool)
    triplets = positive[:, :, None] & ~same[:, None, :]
    dense = torch.nn.functional.softplus(gap)[triplets].mean()
    ours = batch_all_triplet(rows, labels, l2_normalize=False)
    (expected,) = torch.autograd.grad(dense, rows)
    (gradient,) = torch.autograd.grad(ours, rows)
    torch.testing.assert_close(ours, dense)
    torch.testing.assert_close(gradient, expected)


class LargestTensor(TorchDispatchMode):
    """Remembers the number of entries of the largest tensor that any operation made."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, Tensor):
                self.entries = max(self.entries, value.numel())
        return result


@pytest.mark.parametrize("loss", DEFAULTS)
@pytest.mark.parametrize("classes", [2, 5, 60])
def test_no_tensor_is_larger_than_the_matrix_of_pairs(loss: Loss, classes: int) -> None:
    rows, labels = random_rows(120, classes)
    with LargestTensor() as largest:  # type: ignore[no-untyped-call]
        loss(rows.requires_grad_(), labels).backward()
    assert 0 < largest.entries <= 120 * 120


@pytest.mark.parametrize("loss", DEFAULTS)
def test_half_precision_and_autocast_do_not_affect_ranking_losses(loss: Loss) -> None:
    rows, labels = random_rows(10, 3)
    half = rows.to(torch.bfloat16)
    expected = loss(half.float(), labels).item()
    with torch.autocast("cpu", torch.bfloat16):
        values = [loss(half, labels), loss(half.float(), labels)]
    for value in [loss(half, labels), *values]:
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("loss", DEFAULTS)
def test_wrong_shapes_are_reported(loss: Loss) -> None:
    with pytest.raises(ValueError, match=r"\(n, classes\).*\(3, 2\) and \(4,\)"):
        loss(torch.zeros(3, 2), torch.zeros(4, dtype=torch.long))


def test_l2_normalized_rows_have_length_one_and_zero_stays_zero() -> None:
    rows = l2_normalized(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e30, 0.0]]))
    assert rows.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0], [1.0, 0.0]]


# --- losses of predictions and targets -----------------------------------------------------------------------

ROWS, LABELS = random_rows(6, 3)
MASK = torch.tensor([True, False, True, False, False, True])
TARGETS = random_rows(6, 3, seed=9)[0].softmax(1)
TARGETS[0] = torch.tensor([0.0, 1.0, 0.0, 0.0])  # so that 0 ln 0 occurs
COSTS = [naive.cross_entropy(row, label) for row, label in zip(ROWS.tolist(), LABELS.tolist(), strict=True)]
PAIRS = list(zip(ROWS.tolist(), TARGETS.tolist(), strict=True))
SOFT_COSTS, SQUARES = [[cost(*pair) for pair in PAIRS] for cost in (naive.soft_cross_entropy, naive.squared_error)]


def mean_of_kept(costs: list[float], mask: list[bool]) -> float:
    return sum(cost for cost, kept in zip(costs, mask, strict=True) if kept) / max(sum(mask), 1)


def annealed(threshold: float, costs: list[float], left: int) -> float:
    """The mean over the rows whose label has at most this probability, which are so many."""
    kept = [naive.softmax(row)[label] <= threshold for row, label in zip(ROWS.tolist(), LABELS.tolist(), strict=True)]
    assert sum(kept) == left
    return mean_of_kept(costs, kept)


# Each loss beside its value, or its value for each row.
CLASSIFICATION: dict[str, tuple[Callable[[Tensor], Tensor], float | list[float]]] = {
    "masked cross-entropy": (
        lambda rows: masked_cross_entropy(rows, LABELS, MASK),
        sum(cost for cost, kept in zip(COSTS, MASK.tolist(), strict=True) if kept) / 6,
    ),
    "soft cross-entropy": (lambda rows: soft_cross_entropy(rows, targets(rows)), sum(SOFT_COSTS) / 6),
    "brier": (lambda rows: brier(rows, targets(rows)), sum(SQUARES) / 6),
    "masked brier": (
        lambda rows: masked_brier(rows, targets(rows), MASK),
        mean_of_kept(SQUARES, MASK.tolist()),
    ),
    "masked brier, nothing left": (lambda rows: masked_brier(rows, targets(rows), torch.zeros(6)), 0.0),
    "KL": (lambda rows: kl_divergence(rows, targets(rows)), [naive_methods.kl(t, row) for row, t in PAIRS]),
    "entropy": (entropy, [naive_methods.entropy(row) for row in ROWS.tolist()]),
    **{
        f"TSA at {threshold}": (
            partial(tsa_cross_entropy, labels=LABELS, threshold=threshold),
            annealed(threshold, COSTS, left),
        )
        for threshold, left in ((0.0, 0), (0.2, 4), (0.32, 5), (math.inf, 6))
    },
    "TSA with targets": (
        lambda rows: tsa_cross_entropy(rows, LABELS, 0.2, targets(rows)),
        annealed(0.2, SOFT_COSTS, 4),
    ),
}


def targets(rows: Tensor) -> Tensor:
    return TARGETS.to(rows.dtype)


@pytest.mark.parametrize(("loss", "expected"), CLASSIFICATION.values(), ids=CLASSIFICATION)
def test_classification_losses_equal_their_formulas_and_have_correct_and_finite_gradients(
    loss: Callable[[Tensor], Tensor], expected: float | list[float]
) -> None:
    assert loss(ROWS).tolist() == pytest.approx(expected)
    assert torch.autograd.gradcheck(loss, ROWS.clone().requires_grad_())
    large = (ROWS * 1e4).float().requires_grad_()
    value = loss(large).sum()
    value.backward()
    assert torch.isfinite(value)
    assert large.grad is not None
    assert torch.isfinite(large.grad).all()
