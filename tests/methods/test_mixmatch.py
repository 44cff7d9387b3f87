"""MixMatch against loops written from its paper."""

from typing import Any

import naive
import pytest
from linear import Linear, fixed_batch, losses_of, mixed_rows, naive_logits, rows_of

from rankingmatch.methods.mixmatch import MixMatch


def naive_parts(h: Any, model: Linear) -> tuple[float, float]:
    """L_x and L_u."""
    batch = fixed_batch(h)
    views = [rows_of(view) for view in batch.unlabeled]
    guess = []
    for rows in zip(*views, strict=True):
        mean = naive.mean_of([naive.softmax(naive_logits(model, row)) for row in rows])
        guess.append(naive.sharpened(mean, h.sharpening))
    logits, targets = mixed_rows(h, model, batch, guess)
    labeled = [naive.soft_cross_entropy(logits[i], targets[i]) for i in range(4)]
    unlabeled = [naive.squared_error(logits[i], targets[i]) for i in range(4, len(logits))]
    return sum(labeled) / len(labeled), sum(unlabeled) / len(unlabeled)


@pytest.mark.parametrize(
    "given",
    [{}, {"guesses": 1}, {"guesses": 3}, {"sharpening": 0.9}, {"alpha": 0.2}, {"unlabeled_weight": 3.0}],
    ids=str,
)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    method, model = MixMatch(**given), Linear(scale)
    losses = losses_of(method, model)
    labeled, unlabeled = naive_parts(method, model)
    assert losses.parts["labeled_ce"].item() == pytest.approx(labeled, rel=1e-9)
    assert losses.parts["unlabeled_l2"].item() == pytest.approx(unlabeled, rel=1e-9)
    assert losses.total.item() == pytest.approx(labeled + method.unlabeled_weight * unlabeled, rel=1e-9)


@pytest.mark.parametrize(("step", "ramp", "share"), [(0, 0.125, 0.0), (5, 0.125, 0.4), (50, 0.125, 1.0), (0, 0.0, 1.0)])
def test_the_unlabeled_weight_rises_over_the_ramp(step: int, ramp: float, share: float) -> None:
    losses = losses_of(MixMatch(ramp=ramp), Linear(), step, steps=100)
    expected = losses.parts["labeled_ce"] + 75 * share * losses.parts["unlabeled_l2"]
    assert losses.total.item() == pytest.approx(expected.item(), rel=1e-12)


def test_every_guess_is_learned_from() -> None:
    method, model = MixMatch(), Linear()
    pseudo = losses_of(method, model).pseudo_labels
    assert pseudo is not None
    assert pseudo.confident.all()
    first, second = (model(view).logits.softmax(1) for view in fixed_batch(method).unlabeled)
    assert pseudo.labels.tolist() == (first + second).argmax(1).tolist()
