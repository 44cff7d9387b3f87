"""Remedies for unbalanced classes: their formulas, and what every method does with them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from lookup import Lookup, precision
from naive_rebalancing import ORACLES, Run, Step
from tiny import CPU, tiny_settings, tiny_split, tiny_state
from torch import Tensor

from rankingmatch.augment import Policy, Weak
from rankingmatch.core.errors import ConfigError
from rankingmatch.methods import METHODS, Batch, Context, Task, hyperparameters_of, make_method
from rankingmatch.methods.rebalancing import REMEDIES, LogitAdjustment, Rebalanced, enqueue
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import train, training_step

COUNTS = (20, 5, 2)
POOL, LENGTH = 8, 200  # unlabeled images, and steps of the schedule
USABLE = [name for name in METHODS if any(option.name == "rebalance" for option in hyperparameters_of(name))]
CHANGING = [name for name in REMEDIES if name != "none"]


def images(start: int, stop: int) -> Tensor:
    return torch.arange(start, stop, dtype=torch.uint8).view(-1, 1, 1, 1)


def losses_and_run(count: int, scale: float, rebalance: str, strength: float | None = None) -> tuple[list[float], Run]:
    """The losses of the first steps of a run of FixMatch with random outputs, and the run as lists."""
    generator = torch.Generator().manual_seed(1)

    def random(columns: int) -> Tensor:
        return torch.randn(16, columns, generator=generator, dtype=torch.float64)

    losses, steps = [], []
    with precision():
        method = make_method("fixmatch-ra", {"rebalance": rebalance, "rebalance_strength": strength})
        assert isinstance(method, Rebalanced)
        method.prepare(Task(3, 4, POOL, label_counts=COUNTS))
        for step in range(count):
            model, teacher = (Lookup(scale * random(3), random(4)) for _ in range(2))
            labels = torch.randint(3, (4,), generator=generator)
            if step == 0:  # a prototype of each class from the first step on
                labels = torch.tensor([0, 1, 2, 2])
            rows = torch.randint(POOL, (6,), generator=generator)  # one may occur twice
            draws = torch.Generator().manual_seed(step)
            batch = Batch((images(0, 4),), labels, (images(4, 10), images(10, 16)), rows)
            losses.append(method(model, batch, Context(step, LENGTH, teacher, draws)).total.item())
            draws.manual_seed(step)
            logits, own = model.logits.tolist(), model.features.tolist()
            uniform = [*torch.rand(4, generator=draws).tolist(), *torch.rand(6, generator=draws).tolist()]
            parts = (logits[:4], logits[4:10], logits[10:], own[:4], own[4:10], own[10:])
            steps.append(Step(labels.tolist(), *parts, teacher.features[:4].tolist(), rows.tolist(), draws=uniform))
    return losses, Run(steps, list(COUNTS), strength, POOL, LENGTH, method.remedy)


@pytest.mark.parametrize(
    ("remedy", "count", "strengths"),
    [
        ("none", 3, (None,)),
        ("alignment", 140, (None,)),
        ("logit-adjustment", 3, (None, 0.3, 2.0)),
        ("debiaspl", 40, (None, 1.5)),
        ("abc", 150, (None,)),
        ("darp", 105, (None,)),
        ("daso", 205, (None, 0.3)),
        *(("crest", count, (None, 1.0)) for count in (20, 35, 140, 200)),
    ],
)
@pytest.mark.parametrize("scale", [0.5, 4.0, 20.0])
def test_loss_equals_an_independent_computation(
    remedy: str, count: int, strengths: tuple[float | None, ...], scale: float
) -> None:
    for strength in strengths:
        losses, run = losses_and_run(count, scale, remedy, strength)
        expected = ORACLES[remedy](run)
        assert losses == pytest.approx(expected, rel=1e-6 if remedy == "darp" else 1e-9)
        if scale == 4.0 and remedy != "none" and count > 35:
            assert expected != pytest.approx(ORACLES["none"](run), rel=1e-6)
        if remedy == "crest":
            assert run.remedy.given_labels.tolist() == run.given
            assert any(label >= 0 for label in run.given) == (count > LENGTH / 6)


def test_images_that_crest_has_labeled_are_drawn_as_labeled_ones() -> None:
    split, settings = tiny_split(labeled=7), tiny_settings()
    # Image 3 of the unlabeled pool is also a labeled one, and keeps its label.
    split = replace(split, unlabeled_rows=np.concatenate([split.unlabeled_rows[:3], split.labeled_rows[:1]]))
    state = tiny_state(split, settings, "fixmatch-ra", rebalance="crest")
    method = state.objective.method
    assert method.given_labels is not None
    method.given_labels.copy_(torch.tensor([2, -1, 0, 2]))
    expected = {**dict(zip(split.labeled_rows.tolist(), [0, 1, 2, 0, 1, 2, 0], strict=True)), 7: 2, 9: 0}
    drawn: dict[int, int] = {}
    unchanged: dict[str, Policy] = {name: Weak(flip=False, padding=0) for name in ("weak", "strong")}
    for step in range(6):  # 6 of 9 rows at a time
        batch, _ = make_batch(split, method, unchanged, settings, step, CPU)
        for image, label, position in zip(batch.labeled[0], batch.labels, batch.labeled_rows, strict=True):
            (row,) = np.flatnonzero((split.images.transpose(0, 3, 1, 2) == image.numpy()).all((1, 2, 3)))
            drawn[int(row)] = int(label)
            assert position == (row if row < 7 else -1)
    assert drawn == expected


@pytest.mark.parametrize("size", [3, 7])
def test_a_queue_keeps_the_latest_features_of_each_class(size: int) -> None:
    queue, queued = torch.zeros(2, size, 1), torch.zeros(2, dtype=torch.long)
    expected: list[list[float]] = [[], []]
    generator, value = torch.Generator().manual_seed(0), 0
    for _ in range(9):
        labels = torch.randint(2, (5,), generator=generator)
        features = torch.arange(value, value + 5, dtype=torch.float32)
        enqueue(queue, queued, features[:, None], labels)
        for label, feature in zip(labels.tolist(), features.tolist(), strict=True):
            expected[label] = [*expected[label], feature][-size:]
        value += 5
    for label in range(2):
        assert sorted(queue[label].flatten().tolist()) == expected[label]


# --- with every method --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", USABLE)
@pytest.mark.parametrize("remedy", CHANGING)
def test_a_remedy_changes_what_a_method_learns(name: str, remedy: str) -> None:
    split, settings = tiny_split(labeled=7), tiny_settings(steps=3)
    weights = []
    for rebalance in ("none", remedy):
        threshold = {"threshold": 0.3} if "threshold" in vars(make_method(name, {})) else {}
        state = tiny_state(split, settings, name, rebalance=rebalance, **threshold)
        list(train(state, split, settings))
        weights.append(state.model.state_dict()["backbone.head.weight"].clone())
    assert not torch.equal(*weights)


@pytest.mark.parametrize("name", ["uda", "rankingmatch-bm"])
@pytest.mark.parametrize("remedy", CHANGING)
def test_every_parameter_moves_and_very_large_logits_stay_finite(name: str, remedy: str) -> None:
    split, settings = tiny_split(labeled=7), tiny_settings()
    state = tiny_state(split, settings, name, rebalance=remedy)
    batch, _ = make_batch(split, state.objective.method, state.views, settings, 0, CPU)
    training_step(state, batch, settings)
    for key, parameter in state.objective.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key
    with torch.no_grad():
        for parameter in state.model.parameters():
            parameter.mul_(30)
    losses = training_step(state, batch, settings)
    assert torch.isfinite(losses.total)
    assert all(torch.isfinite(value).all() for value in state.objective.method.buffers())


def test_without_a_remedy_checkpoints_have_no_other_tensors() -> None:
    state = tiny_state(tiny_split(), tiny_settings(), "fixmatch-ra")
    assert not [name for name in state.objective.state_dict() if name.startswith("method.")]


def test_ranking_ignores_the_shift_of_logits() -> None:
    split, settings = tiny_split(labeled=7), tiny_settings()
    ranks = []
    for rebalance in ("none", "logit-adjustment"):
        state = tiny_state(split, settings, rebalance=rebalance)
        batch, _ = make_batch(split, state.objective.method, state.views, settings, 0, CPU)
        ranks.append(training_step(state, batch, settings).parts["labeled_rank"])
    assert torch.equal(*ranks)


def test_the_label_counts_are_those_that_batches_draw() -> None:
    state = tiny_state(tiny_split(labeled=7), tiny_settings(), "fixmatch-ra", rebalance="logit-adjustment")
    remedy = state.objective.method.remedy
    assert isinstance(remedy, LogitAdjustment)
    assert remedy.shift.exp().tolist() == pytest.approx([3 / 7, 2 / 7, 2 / 7])


@pytest.mark.parametrize(
    ("hyperparameters", "features", "message"),
    [
        ({"rebalance": "abc"}, 0, "rebalance is abc, which needs features"),
        ({"rebalance": "daso"}, 0, "rebalance is daso, which needs features"),
        ({"rebalance": "abc", "rebalance_strength": 2.0}, 4, "rebalance_strength is 2, but rebalance abc has no"),
        ({"rebalance_strength": 2.0}, 4, "rebalance none has no strength"),
    ],
)
def test_settings_that_contradict_each_other_are_errors(
    hyperparameters: dict[str, Any], features: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_method("fixmatch-ra", hyperparameters).prepare(Task(3, features, POOL, label_counts=COUNTS))
