"""RealMix against loops written from its description."""

import math
from typing import Any

import naive
import pytest
from linear import CLASSES, LABELS, Linear, assert_finite, fixed_batch, generator, losses_of, naive_logits, rows_of

from rankingmatch.methods import Method, make_method
from rankingmatch.methods.mixing import draw_mixup

DEFAULTS: dict[str, Any] = {
    "unlabeled_weight": 75.0,
    "guesses": 2,
    "strong_views": 1,
    "sharpening": 0.5,
    "alpha": 0.75,
    "tsa": "linear",
    "dropped": 0.1,
}


def naive_total(method: Method, model: Linear, step: int, chosen: dict[str, Any]) -> tuple[float, int, int]:
    """The loss at a step of 10, how many labeled rows count, and how many images have an unlabeled row that does."""
    batch = fixed_batch(method)
    views = [rows_of(view) for view in batch.unlabeled]
    means = []
    for i in range(6):
        weak = [naive.softmax(naive_logits(model, view[i])) for view in views[: chosen["guesses"]]]
        means.append(naive.mean_of(weak))
    targets = [naive.one_hot(label, CLASSES) for label in LABELS]
    targets += [naive.sharpened(mean, chosen["sharpening"]) for mean in means] * len(views)
    pool = rows_of(batch.labeled[0]) + [row for view in views for row in view]
    draw = draw_mixup(len(pool), chosen["alpha"], generator())
    shares, partners = draw.share.tolist(), draw.partner.tolist()
    targets = naive.mixed(targets, shares, partners)
    logits = [naive_logits(model, row) for row in naive.mixed(pool, shares, partners)]
    done = step / 10
    alpha = {"linear": done, "exp": math.exp(5 * (done - 1)), "log": 1 - math.exp(-5 * done)}[chosen["tsa"]]
    threshold = alpha * (1 - 1 / CLASSES) + 1 / CLASSES
    kept = [i for i in range(4) if naive.softmax(logits[i])[LABELS[i]] <= threshold]
    labeled = sum(naive.soft_cross_entropy(logits[i], targets[i]) for i in kept) / max(len(kept), 1)
    # The least confident predictions for mixed rows are left out, also of the divisor.
    order = sorted(range(4, len(pool)), key=lambda i: max(naive.softmax(logits[i])))
    used = order[math.floor(chosen["dropped"] * len(order)) :]
    unlabeled = sum(naive.squared_error(logits[i], targets[i]) for i in used) / len(used)
    images = len({(i - 4) % 6 for i in used})
    return labeled + chosen["unlabeled_weight"] * min(1, done / 0.125) * unlabeled, len(kept), images


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"strong_views": 0},
        {"strong_views": 3, "guesses": 1},
        {"tsa": "exp"},
        {"tsa": "log"},
        {"dropped": 0.0},
        {"dropped": 0.7},
        {"sharpening": 0.8, "alpha": 2.0, "unlabeled_weight": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize(("step", "scale"), [(0, 1.0), (0, -1.0), (4, -3.0), (10, 3.0)])
def test_loss_equals_an_independent_computation(given: dict[str, Any], step: int, scale: float) -> None:
    method, model = make_method("realmix", given), Linear(scale)
    expected, _, kept = naive_total(method, model, step, {**DEFAULTS, **given})
    losses = losses_of(method, model, step)
    assert losses.total.item() == pytest.approx(expected, rel=1e-9)
    assert losses.pseudo_labels is not None
    assert int(losses.pseudo_labels.confident.sum()) == kept


def test_the_cases_above_leave_some_labeled_rows_out_and_keep_others() -> None:
    counts = {
        naive_total(make_method("realmix", {}), Linear(scale), step, DEFAULTS)[1]
        for step, scale in [(0, 1.0), (0, -1.0), (4, -3.0), (10, 3.0)]
    }
    assert len(counts) > 1
    assert max(counts) == 4


def test_without_dropped_rows_the_unlabeled_loss_is_that_of_mixmatch() -> None:
    mixmatch = losses_of(make_method("mixmatch", {}), Linear(2.0)).parts["unlabeled_l2"].item()
    all_rows = losses_of(make_method("realmix", {"strong_views": 0, "dropped": 0.0}), Linear(2.0))
    assert all_rows.parts["unlabeled_l2"].item() == pytest.approx(mixmatch, rel=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("step", [0, 10])
def test_extreme_logits_give_finite_losses_and_gradients(scale: float, step: int) -> None:
    assert_finite(make_method("realmix", {}), Linear(scale), step)
