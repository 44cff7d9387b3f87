"""What every method must do. A method added to the table is tested here by itself, once it has an oracle."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import naive
from rankingmatch.augment import CTAugment
from rankingmatch.batches import make_batch
from rankingmatch.checkpoint import restore_latest, save_checkpoint
from rankingmatch.data import Split
from rankingmatch.methods import METHODS, Batch, Context, Losses, Task, make_method
from rankingmatch.networks import Output
from rankingmatch.train import train, training_step
from tiny import CPU, tiny_settings, tiny_split, tiny_state

every_method = pytest.mark.parametrize("name", METHODS)


# --- the loss, against loops written from the paper ---------------------------------------------------------


class Table(nn.Module):
    """A "network" whose outputs are looked up: image i, a 1×1 picture of the number i, has the logits of row i."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images: Tensor) -> Output:
        logits = self.logits[images.flatten().long()]
        return Output(logits, logits * 2 + 1)


def numbered(start: int, stop: int) -> Tensor:
    return torch.arange(start, stop, dtype=torch.uint8).view(-1, 1, 1, 1)


def fixed_losses(name: str, logits: Tensor, **hyperparameters: Any) -> Losses:
    """The losses of a method for 4 labeled rows (0…3), 6 weak rows (4…9) and 6 strong rows (10…15)."""
    model = Table(logits)
    method = make_method(name, hyperparameters)
    method.prepare(Task(classes=3, features=3, unlabeled=6))
    batch = Batch((numbered(0, 4),), torch.tensor([0, 1, 1, 2]))
    if method.unlabeled_views:
        views = {"weak": numbered(4, 10), "strong": numbered(10, 16)}
        unlabeled = tuple(views[view] for view in method.unlabeled_views)
        batch = Batch(batch.labeled, batch.labels, unlabeled, torch.arange(6))
    losses: Losses = method(model, batch, Context(0, 10, model, torch.Generator()))
    return losses


def naive_supervised(rows: naive.Rows, confident: list[int], pseudo: list[int]) -> float:
    return sum(naive.cross_entropy(rows[i], y) for i, y in enumerate([0, 1, 1, 2])) / 4


def naive_fixmatch(rows: naive.Rows, confident: list[int], pseudo: list[int]) -> float:
    unlabeled = sum(naive.cross_entropy(rows[10 + i], pseudo[i]) for i in confident) / 6
    return naive_supervised(rows, confident, pseudo) + unlabeled


def naive_ranking(*losses: Callable[[naive.Rows, list[int]], float]) -> Callable[..., float]:
    def total(rows: naive.Rows, confident: list[int], pseudo: list[int]) -> float:
        strong, labels = [rows[10 + i] for i in confident], [pseudo[i] for i in confident]
        rank = sum(loss(rows[:4], [0, 1, 1, 2]) + loss(strong, labels) for loss in losses)
        return naive_fixmatch(rows, confident, pseudo) + rank

    return total


def naive_mean(rows: naive.Rows, labels: list[int]) -> float:
    return naive.batch_mean(rows, labels, m=0.5, soft=True, l2=True, squared=False, true_mean=False)


def naive_hard(rows: naive.Rows, labels: list[int]) -> float:
    return naive.batch_hard(rows, labels, m=0.5, soft=True, l2=True, squared=False)


def naive_all(rows: naive.Rows, labels: list[int]) -> float:
    return naive.batch_all(rows, labels, m=0.5, soft=True, l2=True, squared=False)


def naive_contrastive(rows: naive.Rows, labels: list[int]) -> float:
    return naive.contrastive(rows, labels, temperature=0.2, l2=True)


# Methods that mix images cannot be judged by a look-up: their oracle is in tests/methods/test_<name>.py.
ORACLES: dict[str, Callable[..., float]] = {
    "supervised": naive_supervised,
    "fixmatch-ra": naive_fixmatch,
    "fixmatch-cta": naive_fixmatch,
    "rankingmatch-bm": naive_ranking(naive_mean),
    "rankingmatch-ct": naive_ranking(naive_contrastive),
    "rankingmatch-bh": naive_ranking(naive_hard),
    "rankingmatch-ba": naive_ranking(naive_all),
    "rankingmatch-bm+ct": naive_ranking(naive_mean, naive_contrastive),
}


def fixed_logits(scale: float) -> Tensor:
    return torch.randn(16, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * scale


@every_method
def test_there_is_an_oracle(name: str) -> None:
    if name not in ORACLES:
        apart = Path(__file__).parent.parent / "methods" / f"test_{name.replace('-', '_')}.py"
        assert "def test_loss_equals_an_independent_computation(" in apart.read_text()


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("scale", [0.1, 3.0, 1000.0], ids=["no row confident", "some confident", "all confident"])
def test_loss_equals_an_independent_computation(name: str, scale: float) -> None:
    logits = fixed_logits(scale)
    rows = logits.tolist()
    weak = [naive.softmax(row) for row in rows[4:10]]
    pseudo = [p.index(max(p)) for p in weak]
    confident = [i for i, p in enumerate(weak) if max(p) >= 0.95]
    assert len(confident) == {0.1: 0, 3.0: 2, 1000.0: 6}[scale]
    losses = fixed_losses(name, logits)
    assert losses.total.item() == pytest.approx(ORACLES[name](rows, confident, pseudo), rel=1e-9)


def other_ranking(loss: Callable[..., float], **options: Any) -> Callable[[naive.Rows, list[int]], float]:
    standard: dict[str, Any] = {"m": 0.5, "soft": True, "l2": True, "squared": False}
    return lambda rows, labels: loss(rows, labels, **{**standard, **options})


def plus_one(rows: naive.Rows) -> naive.Rows:
    """The features that Table has beside its logits."""
    return [[2 * value + 1 for value in row] for row in rows]


@pytest.mark.parametrize(
    ("name", "hyperparameters", "rank"),
    [
        ("fixmatch-ra", {"unlabeled_weight": 0.3}, None),
        ("fixmatch-ra", {"threshold": 0.6}, None),
        ("rankingmatch-bm", {"unlabeled_weight": 0.3}, naive_mean),
        ("rankingmatch-bm", {"ranking_weight": 0.3}, naive_mean),
        ("rankingmatch-bm", {"rank_all": True}, naive_mean),
        ("rankingmatch-bm", {"rank_on": "features"}, lambda rows, labels: naive_mean(plus_one(rows), labels)),
        ("rankingmatch-bm", {"margin": 0.1}, other_ranking(naive.batch_mean, m=0.1, true_mean=False)),
        ("rankingmatch-bm", {"true_mean": True}, other_ranking(naive.batch_mean, true_mean=True)),
        ("rankingmatch-bh", {"soft_margin": False}, other_ranking(naive.batch_hard, soft=False)),
        ("rankingmatch-ba", {"squared": True}, other_ranking(naive.batch_all, squared=True)),
        ("rankingmatch-ba", {"l2_normalize": False}, other_ranking(naive.batch_all, l2=False)),
        ("rankingmatch-ct", {"temperature": 0.9}, lambda r, y: naive.contrastive(r, y, temperature=0.9, l2=True)),
        ("rankingmatch-ct", {"l2_normalize": False}, lambda r, y: naive.contrastive(r, y, temperature=0.2, l2=False)),
    ],
)
def test_every_hyper_parameter_does_what_it_says(
    name: str, hyperparameters: dict[str, Any], rank: Callable[[naive.Rows, list[int]], float] | None
) -> None:
    logits = fixed_logits(3.0)
    rows = logits.tolist()
    weak = [naive.softmax(row) for row in rows[4:10]]
    pseudo = [p.index(max(p)) for p in weak]
    confident = [i for i, p in enumerate(weak) if max(p) >= hyperparameters.get("threshold", 0.95)]
    ranked = range(6) if hyperparameters.get("rank_all") else confident
    expected = naive_supervised(rows, confident, pseudo)
    unlabeled = sum(naive.cross_entropy(rows[10 + i], pseudo[i]) for i in confident) / 6
    expected += hyperparameters.get("unlabeled_weight", 1.0) * unlabeled
    if rank is not None:
        strong = rank([rows[10 + i] for i in ranked], [pseudo[i] for i in ranked])
        expected += hyperparameters.get("ranking_weight", 1.0) * (rank(rows[:4], [0, 1, 1, 2]) + strong)
    assert fixed_losses(name, logits, **hyperparameters).total.item() == pytest.approx(expected, rel=1e-9)


@every_method
def test_all_ways_of_the_weak_views_agree_without_batchnorm(name: str) -> None:
    if "weak_pass" not in vars(make_method(name, {})):
        pytest.skip("the method has no weak pass")
    totals = {
        fixed_losses(name, fixed_logits(3.0), weak_pass=way).total.item() for way in ("joint", "batch", "running")
    }
    assert max(totals) == pytest.approx(min(totals), rel=1e-12)


# --- training -----------------------------------------------------------------------------------------------


def run_steps(split: Split, name: str, seed: int = 0, **hyperparameters: object) -> dict[str, Tensor]:
    """Train a few steps; every loss on the way must be finite. Returns the final state."""
    settings = tiny_settings(steps=3, seed=seed)
    state = tiny_state(split, settings, name, **hyperparameters)
    for record in train(state, split, settings):
        if record.metrics:
            assert all(math.isfinite(value) for value in record.metrics.losses.values())
    return {key: value.clone() for key, value in state.objective.state_dict().items()}


@every_method
def test_every_trainable_parameter_gets_a_gradient_and_moves(name: str) -> None:
    split, settings = tiny_split(), tiny_settings()
    state = tiny_state(split, settings, name)
    before = {key: value.clone() for key, value in state.objective.named_parameters()}
    batch, _ = make_batch(split, state.objective.method, state.views, settings, 0, CPU)
    training_step(state, batch, settings)
    for key, parameter in state.objective.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key
        assert not torch.equal(parameter, before[key]), key


@every_method
def test_resuming_from_a_checkpoint_is_bit_exact(name: str, tmp_path: Any) -> None:
    split, settings = tiny_split(), tiny_settings(steps=7)
    whole = tiny_state(split, settings, name)
    for record in train(whole, split, settings):
        if record.step == 3:  # in the middle of a logging window
            save_checkpoint(tmp_path, whole)
    resumed = tiny_state(split, settings, name)
    assert restore_latest(tmp_path, resumed)
    records = list(train(resumed, split, settings))
    assert [record.step for record in records] == [4, 5, 6, 7]
    for name, policy in whole.views.items():
        if isinstance(policy, CTAugment):
            learned = resumed.views[name]
            assert isinstance(learned, CTAugment)
            assert torch.equal(learned.rates, policy.rates)
            assert (policy.rates < 1).any()
    for mine, theirs in ((whole.objective, resumed.objective), (whole.ema, resumed.ema)):
        expected = mine.state_dict()
        for key, value in theirs.state_dict().items():
            assert torch.equal(value, expected[key]), key


@every_method
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(name: str) -> None:
    split = tiny_split()
    first, again, other = run_steps(split, name), run_steps(split, name), run_steps(split, name, seed=1)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["model.backbone.head.weight"], other["model.backbone.head.weight"])


@every_method
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("classes", [2, 200])
def test_any_number_of_channels_and_classes(name: str, channels: int, classes: int) -> None:
    run_steps(tiny_split(classes, channels), name)


@every_method
@pytest.mark.parametrize("threshold", [1e-9, 1.0], ids=["all confident", "none confident"])
def test_all_or_no_rows_confident(name: str, threshold: float) -> None:
    if "threshold" not in vars(make_method(name, {})):
        pytest.skip("the method has no threshold")
    run_steps(tiny_split(), name, threshold=threshold)


@every_method
def test_a_constant_dataset_does_not_break_it(name: str) -> None:
    split = tiny_split()
    run_steps(replace(split, images=np.full_like(split.images, 7)), name)


@every_method
def test_an_unlabeled_pool_smaller_than_a_batch_does_not_break_it(name: str) -> None:
    run_steps(tiny_split(unlabeled=1), name)
