"""ReMixMatch against loops written from its paper."""

from typing import Any

import naive
import pytest
import torch
from linear import CLASSES, LABELS, Linear, assert_finite, fixed_batch, generator, naive_logits, rows_of

from rankingmatch.methods import Batch, Context, Task, make_method
from rankingmatch.methods.mixing import draw_mixup
from rankingmatch.methods.remixmatch import ReMixMatch

DEFAULTS: dict[str, Any] = {
    "unlabeled_weight": 1.5,
    "strong_weight": 0.5,
    "rotation_weight": 0.5,
    "guesses": 8,
    "sharpening": 0.5,
    "alpha": 0.75,
}
# What training has seen so far: labels of each class, and predictions (here of three batches, the other 125 uniform).
COUNTS = [5.0, 2.0, 3.0]
SEEN = [[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.9, 0.05, 0.05]]


def prepared(given: dict[str, Any]) -> ReMixMatch:
    method = make_method("remixmatch", given)
    assert isinstance(method, ReMixMatch)
    method.prepare(Task(CLASSES, CLASSES, 6))
    method.double()
    method.label_counts.copy_(torch.tensor(COUNTS))
    method.predictions[:3] = torch.tensor(SEEN, dtype=torch.float64)
    return method


def turned(picture: list[float], turns: int) -> list[float]:
    """A 2×2 picture [a b / c d] turned counter-clockwise, once: [b d / a c]."""
    for _ in range(turns):
        a, b, c, d = picture
        picture = [b, d, a, c]
    return picture


def naive_parts(method: ReMixMatch, model: Linear, chosen: dict[str, Any]) -> dict[str, float]:
    batch = fixed_batch(method)
    views = [rows_of(view) for view in batch.unlabeled]
    uniform = [1 / CLASSES] * CLASSES
    believed = naive.mean_of(SEEN + [uniform] * 125)
    guess = []
    for row in views[0]:
        q = naive.softmax(naive_logits(model, row))
        q = [v * (count / sum(COUNTS)) / b for v, count, b in zip(q, COUNTS, believed, strict=True)]
        guess.append(naive.sharpened([v / sum(q) for v in q], chosen["sharpening"]))
    pool = rows_of(batch.labeled[0]) + [row for view in views for row in view]
    targets = [naive.one_hot(label, CLASSES) for label in LABELS] + guess * (1 + chosen["guesses"])
    source = generator()
    draw = draw_mixup(len(pool), chosen["alpha"], source)
    turns = torch.randint(4, (6,), generator=source).tolist()
    shares, partners = draw.share.tolist(), draw.partner.tolist()
    targets = naive.mixed(targets, shares, partners)
    logits = [naive_logits(model, row) for row in naive.mixed(pool, shares, partners)]
    costs = [naive.soft_cross_entropy(row, target) for row, target in zip(logits, targets, strict=True)]
    strong = [naive.soft_cross_entropy(naive_logits(model, row), t) for row, t in zip(views[1], guess, strict=True)]
    weight, bias = method.rotation_head.weight.tolist(), method.rotation_head.bias.tolist()
    rotation = []
    for row, turn in zip(views[1], turns, strict=True):
        features = [2 * v + 1 for v in naive_logits(model, turned(row, turn))]
        head = [
            sum(w * v for w, v in zip(line, features, strict=True)) + b for line, b in zip(weight, bias, strict=True)
        ]
        rotation.append(naive.cross_entropy(head, turn))
    return {
        "labeled_ce": sum(costs[:4]) / 4,
        "unlabeled_ce": sum(costs[4:]) / len(costs[4:]),
        "strong_ce": sum(strong) / 6,
        "rotation_ce": sum(rotation) / 6,
    }


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"guesses": 1},
        {"guesses": 2, "sharpening": 0.9, "alpha": 2.0},
        {"unlabeled_weight": 1.0, "strong_weight": 0.1, "rotation_weight": 0.2},
    ],
    ids=str,
)
@pytest.mark.parametrize(("step", "ramp"), [(0, 0.0), (1, 0.4), (10, 1.0)])
def test_loss_equals_an_independent_computation(given: dict[str, Any], step: int, ramp: float) -> None:
    chosen = {**DEFAULTS, **given}
    method, model = prepared(given), Linear(2.0)
    parts = naive_parts(method, model, chosen)
    losses = method(model, fixed_batch(method), Context(step, 20, model, generator()))
    for name, value in parts.items():
        assert losses.parts[name].item() == pytest.approx(value, rel=1e-6), name
    expected = parts["labeled_ce"] + chosen["rotation_weight"] * parts["rotation_ce"]
    expected += ramp * chosen["unlabeled_weight"] * parts["unlabeled_ce"]
    expected += ramp * chosen["strong_weight"] * parts["strong_ce"]
    assert losses.total.item() == pytest.approx(expected, rel=1e-6)


def test_the_marginals_take_in_every_batch_and_forget_the_129th() -> None:
    method, model = prepared({"guesses": 1}), Linear(2.0)
    batch = fixed_batch(method)
    mean = naive.mean_of([naive.softmax(naive_logits(model, row)) for row in rows_of(batch.unlabeled[0])])
    method(model, batch, Context(130, 1000, model, generator()))
    assert method.predictions[2].tolist() == pytest.approx(mean)  # 130 = 128 + 2
    torch.testing.assert_close(method.predictions[:2], torch.tensor(SEEN[:2], dtype=torch.float64))
    assert method.label_counts.tolist() == [6.0, 4.0, 4.0]
    assert set(method.state_dict()) == {"label_counts", "predictions", "rotation_head.weight", "rotation_head.bias"}


def test_oblong_images_are_turned_by_half_turns_only() -> None:
    method, model = prepared({"guesses": 1}), Linear(2.0)
    whole = fixed_batch(method)
    labeled = whole.labeled[0].reshape(-1, 1, 1, 4)
    unlabeled = tuple(view.reshape(-1, 1, 1, 4) for view in whole.unlabeled)
    losses = method(model, Batch((labeled,), whole.labels, unlabeled), Context(0, 10, model, generator()))
    assert losses.total.isfinite()


def test_without_features_the_head_reads_the_logits() -> None:
    method = make_method("remixmatch", {})
    method.prepare(Task(classes=7, features=0, unlabeled=6))
    assert method.get_submodule("rotation_head").weight.shape == (4, 7)


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e6])
def test_extreme_logits_give_finite_losses_and_gradients(scale: float) -> None:
    assert_finite(make_method("remixmatch", {}), Linear(scale))
