"""RealMix against loops written from its description."""

import math
from typing import Any

import naive
import pytest
from linear import CLASSES, LABELS, Linear, fixed_batch, losses_of, mixed_rows, naive_logits, rows_of

from rankingmatch.methods.realmix import RealMix

CASES = [(0, 1.0), (0, -1.0), (4, -3.0), (10, 3.0)]  # steps of 10, and scales


def naive_total(h: Any, model: Linear, step: int) -> tuple[float, int, int]:
    """The loss, how many labeled rows count, and how many images have an unlabeled row that does."""
    batch = fixed_batch(h)
    guess = []
    for rows in zip(*map(rows_of, batch.unlabeled[: h.guesses]), strict=True):
        mean = naive.mean_of([naive.softmax(naive_logits(model, row)) for row in rows])
        guess.append(naive.sharpened(mean, h.sharpening))
    logits, targets = mixed_rows(h, model, batch, guess)
    done = step / 10
    alpha = {"linear": done, "exp": math.exp(5 * (done - 1)), "log": 1 - math.exp(-5 * done)}[h.tsa]
    threshold = alpha * (1 - 1 / CLASSES) + 1 / CLASSES
    kept = [i for i in range(4) if naive.softmax(logits[i])[LABELS[i]] <= threshold]
    labeled = sum(naive.soft_cross_entropy(logits[i], targets[i]) for i in kept) / max(len(kept), 1)
    # The least confident predictions for mixed rows are left out, also of the divisor.
    order = sorted(range(4, len(logits)), key=lambda i: max(naive.softmax(logits[i])))
    used = order[math.floor(h.dropped * len(order)) :]
    unlabeled = sum(naive.squared_error(logits[i], targets[i]) for i in used) / len(used)
    images = len({(i - 4) % 6 for i in used})
    return labeled + h.unlabeled_weight * min(1, done / 0.125) * unlabeled, len(kept), images


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
@pytest.mark.parametrize(("step", "scale"), CASES)
def test_loss_equals_an_independent_computation(given: dict[str, Any], step: int, scale: float) -> None:
    method, model = RealMix(**given), Linear(scale)
    expected, _, kept = naive_total(method, model, step)
    losses = losses_of(method, model, step)
    assert losses.total.item() == pytest.approx(expected, rel=1e-9)
    assert losses.pseudo_labels is not None
    assert int(losses.pseudo_labels.confident.sum()) == kept


def test_the_cases_above_leave_some_labeled_rows_out_and_keep_others() -> None:
    counts = {naive_total(RealMix(), Linear(scale), step)[1] for step, scale in CASES}
    assert len(counts) > 1
    assert max(counts) == 4
