"""MixMatch against loops written from its paper."""

from typing import Any

import naive
import pytest
from linear import CLASSES, LABELS, Linear, assert_finite, fixed_batch, generator, losses_of, naive_logits, rows_of

from rankingmatch.methods import Method, make_method
from rankingmatch.methods.mixing import draw_mixup


def naive_parts(method: Method, model: Linear, guesses: int, temperature: float, alpha: float) -> tuple[float, float]:
    """L_x and L_u."""
    batch = fixed_batch(method)
    views = [rows_of(view) for view in batch.unlabeled]
    targets = [naive.one_hot(label, CLASSES) for label in LABELS]
    guess = []
    for i in range(6):
        mean = naive.mean_of([naive.softmax(naive_logits(model, view[i])) for view in views])
        guess.append(naive.sharpened(mean, temperature))
    pool = rows_of(batch.labeled[0]) + [row for view in views for row in view]
    targets += guess * guesses
    draw = draw_mixup(len(pool), alpha, generator())
    pool = naive.mixed(pool, draw.share.tolist(), draw.partner.tolist())
    targets = naive.mixed(targets, draw.share.tolist(), draw.partner.tolist())
    logits = [naive_logits(model, row) for row in pool]
    labeled = [naive.soft_cross_entropy(logits[i], targets[i]) for i in range(4)]
    unlabeled = [naive.squared_error(logits[i], targets[i]) for i in range(4, len(pool))]
    return sum(labeled) / len(labeled), sum(unlabeled) / len(unlabeled)


@pytest.mark.parametrize(
    "given",
    [{}, {"guesses": 1}, {"guesses": 3}, {"sharpening": 0.9}, {"alpha": 0.2}, {"unlabeled_weight": 3.0}],
    ids=str,
)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    method, model = make_method("mixmatch", given), Linear(scale)
    losses = losses_of(method, model)
    chosen = {"guesses": 2, "sharpening": 0.5, "alpha": 0.75, "unlabeled_weight": 75.0, **given}
    labeled, unlabeled = naive_parts(method, model, chosen["guesses"], chosen["sharpening"], chosen["alpha"])
    assert losses.parts["labeled_ce"].item() == pytest.approx(labeled, rel=1e-9)
    assert losses.parts["unlabeled_l2"].item() == pytest.approx(unlabeled, rel=1e-9)
    assert losses.total.item() == pytest.approx(labeled + chosen["unlabeled_weight"] * unlabeled, rel=1e-9)


@pytest.mark.parametrize(("step", "ramp", "share"), [(0, 0.125, 0.0), (5, 0.125, 0.4), (50, 0.125, 1.0), (0, 0.0, 1.0)])
def test_the_unlabeled_weight_rises_over_the_ramp(step: int, ramp: float, share: float) -> None:
    losses = losses_of(make_method("mixmatch", {"ramp": ramp}), Linear(), step, steps=100)
    expected = losses.parts["labeled_ce"] + 75 * share * losses.parts["unlabeled_l2"]
    assert losses.total.item() == pytest.approx(expected.item(), rel=1e-12)


def test_every_guess_is_learned_from() -> None:
    method, model = make_method("mixmatch", {}), Linear()
    pseudo = losses_of(method, model).pseudo_labels
    assert pseudo is not None
    assert pseudo.confident.all()
    first, second = (model(view).logits.softmax(1) for view in fixed_batch(method).unlabeled)
    assert pseudo.labels.tolist() == (first + second).argmax(1).tolist()


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e6])
def test_extreme_logits_give_finite_losses_and_gradients(scale: float) -> None:
    assert_finite(make_method("mixmatch", {}), Linear(scale))
