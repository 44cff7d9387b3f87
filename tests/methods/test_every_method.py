"""What every method must do. A method added to the table is tested here by itself, once it has an oracle."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import naive
import naive_methods
import numpy as np
import pytest
import torch
from tiny import CPU, tiny_settings, tiny_split, tiny_state
from torch import Tensor, nn

from rankingmatch.augment import CTAugment
from rankingmatch.data import Split
from rankingmatch.methods import METHODS, Batch, Context, Losses, Task, make_method
from rankingmatch.networks import Output
from rankingmatch.runs.checkpoint import restore_latest, save_checkpoint
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import train, training_step

every_method = pytest.mark.parametrize("name", METHODS)


# --- the loss, against loops written from the paper ---------------------------------------------------------


class Table(nn.Module):
    """A "network" whose outputs are looked up: image i, a picture of two pixels, has the logits of row i.

    Where a pixel is off its value by less than 8, the logits are off in proportion (SLOPE).
    """

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images: Tensor) -> Output:
        pixels = images.flatten(1).to(self.logits.dtype)
        digits = (pixels.detach() / 16).round()
        number = (8 * digits[:, 0] + digits[:, 1]).long()
        logits = self.logits[number] + (pixels - 16 * digits) @ self.logits.new_tensor(SLOPE).T
        return Output(logits, logits * 2 + 1)


SLOPE = [[0.1, -0.05], [0.02, 0.08], [-0.06, 0.03]]


def numbered(start: int, stop: int) -> Tensor:
    numbers = torch.arange(start, stop)
    return torch.stack([numbers // 8, numbers % 8], 1).mul(16).to(torch.uint8).view(-1, 1, 1, 2)


def fixed_batch(views: tuple[str, ...], rows: Tensor) -> Batch:
    """4 labeled rows (0…3), 6 weak rows (4…9; of a second weak view 16…21) and 6 strong rows (10…15)."""
    images = {"weak": [numbered(4, 10), numbered(16, 22)], "strong": [numbered(10, 16)]}
    unlabeled = tuple(images[view].pop(0) for view in views)
    return Batch((numbered(0, 4),), torch.tensor([0, 1, 1, 2]), unlabeled, rows)


def teacher_of(logits: Tensor) -> Tensor:
    """The logits of a teacher that is not the model."""
    return logits.flip(1) / 2


@contextmanager
def double_precision() -> Iterator[None]:
    """Within, new tensors are float64, so that oracles can be compared closely."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def losses_of_steps(
    name: str, batches: list[Tensor], places: list[list[int]], pool: int, **hyperparameters: Any
) -> list[Losses]:
    """The losses of a method for batches of logits that follow one another, from step 2 of 10 on."""
    method = make_method(name, hyperparameters)
    with double_precision():
        method.prepare(Task(classes=3, features=3, unlabeled=pool))
        losses = []
        for step, (logits, place) in enumerate(zip(batches, places, strict=True), start=2):
            context = Context(step, 10, Table(teacher_of(logits)), torch.Generator())
            losses.append(method(Table(logits), fixed_batch(method.unlabeled_views, torch.tensor(place)), context))
    return losses


def fixed_losses(name: str, logits: Tensor, **hyperparameters: Any) -> Losses:
    """The losses of a method for the fixed batch at step 2 of 10."""
    return losses_of_steps(name, [logits], [list(range(6))], 6, **hyperparameters)[0]


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


def adversarial_draws() -> naive.Rows:
    """What VAT draws for the fixed batch."""
    with double_precision():
        draws: naive.Rows = torch.randn(6, 1, 1, 2, generator=torch.Generator()).flatten(1).tolist()
    return draws


# The sibling methods, as functions of the rows and of the hyper-parameters that are not at their defaults.
SIBLINGS: dict[str, Callable[..., float]] = {
    "pseudo-label": naive_methods.pseudo_label,
    "pi-model": naive_methods.pi_model,
    "mean-teacher": lambda rows, **options: naive_methods.mean_teacher(
        rows, teacher_of(torch.tensor(rows, dtype=torch.float64)).tolist(), **options
    ),
    "vat": lambda rows, **options: naive_methods.vat(rows, SLOPE, adversarial_draws(), **options),
    "uda": naive_methods.uda,
    "flexmatch": lambda rows, **options: naive_methods.flexmatch([rows], [list(range(6))], 6, **options)[0],
    "freematch": lambda rows, **options: naive_methods.freematch([rows], **options)[0],
    "softmatch": lambda rows, **options: naive_methods.softmatch([rows], **options)[0],
}


def sibling(name: str) -> Callable[..., float]:
    return lambda rows, confident, pseudo: SIBLINGS[name](rows)


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
    **{name: sibling(name) for name in SIBLINGS},
}


def fixed_logits(scale: float, seed: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(rows, 3, generator=generator, dtype=torch.float64) for rows in (16, 6)]
    return torch.cat(parts) * scale


@every_method
def test_there_is_an_oracle(name: str) -> None:
    if name not in ORACLES:
        apart = Path(__file__).parent / f"test_{name.replace('-', '_')}.py"
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
        ("rankingmatch-bm", {"ranking_ramp": 0.8}, naive_mean),
        ("rankingmatch-bm", {"rank_all": True}, naive_mean),
        ("rankingmatch-bm", {"rank_on": "features"}, lambda rows, labels: naive_mean(plus_one(rows), labels)),
        ("rankingmatch-bm", {"margin": 0.1}, other_ranking(naive.batch_mean, m=0.1, true_mean=False)),
        ("rankingmatch-bm", {"true_mean": True}, other_ranking(naive.batch_mean, true_mean=True)),
        ("rankingmatch-bh", {"soft_margin": False}, other_ranking(naive.batch_hard, soft=False)),
        ("rankingmatch-bh", {"true_triplets": True}, other_ranking(naive.batch_hard, true_triplets=True)),
        ("rankingmatch-ba", {"squared": True}, other_ranking(naive.batch_all, squared=True)),
        ("rankingmatch-ba", {"l2_normalize": False}, other_ranking(naive.batch_all, l2=False)),
        ("rankingmatch-ct", {"temperature": 0.9}, lambda r, y: naive.contrastive(r, y, temperature=0.9, l2=True)),
        ("rankingmatch-ct", {"l2_normalize": False}, lambda r, y: naive.contrastive(r, y, temperature=0.2, l2=False)),
        (
            "rankingmatch-ct",
            {"l2_normalize": False, "similarity": "dot"},
            lambda r, y: naive.contrastive(r, y, temperature=0.2, l2=False, similarity="dot"),
        ),
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
        weight = hyperparameters.get("ranking_weight", 1.0)
        weight *= 2 / 8 if "ranking_ramp" in hyperparameters else 1  # at step 2, with a ramp over 8 of 10 steps
        expected += weight * (rank(rows[:4], [0, 1, 1, 2]) + strong)
    assert fixed_losses(name, logits, **hyperparameters).total.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "hyperparameters"),
    [
        ("pseudo-label", {"threshold": 0.6}),
        ("pseudo-label", {"unlabeled_weight": 0.3}),
        ("pi-model", {"unlabeled_weight": 0.3}),
        ("mean-teacher", {"unlabeled_weight": 0.3}),
        ("vat", {"epsilon": 2.0}),
        ("vat", {"xi": 0.5}),
        ("vat", {"power_iterations": 0}),
        ("vat", {"power_iterations": 4}),
        ("vat", {"adversarial_weight": 3.0}),
        ("vat", {"entropy_weight": 1.0}),
        ("uda", {"threshold": 0.6}),
        ("uda", {"sharpening": 0.9}),
        ("uda", {"unlabeled_weight": 0.3}),
        ("uda", {"tsa": "linear"}),
        ("uda", {"tsa": "exp"}),
        ("uda", {"tsa": "log"}),
        ("flexmatch", {"unlabeled_weight": 0.3}),
        ("freematch", {"unlabeled_weight": 0.3}),
        ("freematch", {"fairness_weight": 1.0}),
        ("freematch", {"statistics_decay": 0.1}),
        ("freematch", {"lowest_threshold": 0.9, "highest_threshold": 0.95}),
        ("softmatch", {"unlabeled_weight": 0.3}),
        ("softmatch", {"statistics_decay": 0.1}),
        ("softmatch", {"sigmas": 0.5}),
        ("softmatch", {"uniform_alignment": False}),
    ],
)
def test_every_hyper_parameter_of_a_sibling_does_what_it_says(name: str, hyperparameters: dict[str, Any]) -> None:
    # With the decay of a longer run the first batch hardly counts, and every row has full weight.
    others = {"statistics_decay": 0.2} if name == "softmatch" else {}
    logits = fixed_logits(3.0)
    expected = SIBLINGS[name](logits.tolist(), **{**others, **hyperparameters})
    assert expected != pytest.approx(SIBLINGS[name](logits.tolist(), **others))
    total = fixed_losses(name, logits, **{**others, **hyperparameters}).total.item()
    assert total == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["pseudo-label", "pi-model", "mean-teacher", "vat"])
@pytest.mark.parametrize(("share", "ramp"), [(0.0, 1.0), (0.1, 1.0), (0.8, 0.25)])
def test_the_unlabeled_weight_is_ramped_up(name: str, share: float, ramp: float) -> None:
    logits = fixed_logits(3.0)
    expected = SIBLINGS[name](logits.tolist(), ramp=ramp)
    assert fixed_losses(name, logits, ramp=share).total.item() == pytest.approx(expected, rel=1e-6)


STATEFUL: dict[str, Callable[..., list[float]]] = {
    "flexmatch": naive_methods.flexmatch,
    "freematch": lambda batches, places, pool, **options: naive_methods.freematch(batches, **options),
    "softmatch": lambda batches, places, pool, **options: naive_methods.softmatch(batches, **options),
}


@pytest.mark.parametrize(
    ("name", "hyperparameters"),
    [
        ("flexmatch", {}),
        ("flexmatch", {"threshold": 0.6}),
        ("freematch", {}),
        ("freematch", {"statistics_decay": 0.3, "fairness_weight": 1.0}),
        ("freematch", {"statistics_decay": 0.3, "lowest_threshold": 0.6, "highest_threshold": 0.7}),
        ("softmatch", {}),
        ("softmatch", {"statistics_decay": 0.3, "uniform_alignment": False}),
        ("softmatch", {"statistics_decay": 0.3}),
    ],
)
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0, 1000.0])
def test_what_is_remembered_is_right_over_several_steps(
    name: str, hyperparameters: dict[str, Any], scale: float
) -> None:
    batches = [fixed_logits(scale, seed) for seed in range(8)]
    # A pool of 8 rows; some steps see a row twice, as where the pool is smaller than a batch.
    places = [[(5 * step + row * (1 + step % 2)) % 8 for row in range(6)] for step in range(8)]
    assert any(len(set(place)) < 6 for place in places)
    losses = losses_of_steps(name, batches, places, 8, **hyperparameters)
    expected = STATEFUL[name]([logits.tolist() for logits in batches], places, 8, **hyperparameters)
    assert [step.total.item() for step in losses] == pytest.approx(expected, rel=1e-9)
    if scale == 3.0:
        forgetful = [fixed_losses(name, logits, **hyperparameters).total.item() for logits in batches[1:]]
        assert expected[1:] != pytest.approx(forgetful)


@every_method
def test_all_ways_of_the_weak_views_agree_without_batchnorm(name: str) -> None:
    if "weak_pass" not in vars(make_method(name, {})):
        pytest.skip("the method has no weak pass")
    totals = {
        fixed_losses(name, fixed_logits(3.0), weak_pass=way).total.item() for way in ("joint", "batch", "running")
    }
    assert max(totals) == pytest.approx(min(totals), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "learned_from"),
    [
        ("pseudo-label", {"labeled", "weak"}),
        ("pi-model", {"labeled", "second weak"}),
        ("mean-teacher", {"labeled", "weak"}),
        ("vat", {"labeled", "weak"}),
        ("uda", {"labeled", "strong"}),
        ("flexmatch", {"labeled", "strong"}),
        ("freematch", {"labeled", "strong"}),
        ("softmatch", {"labeled", "strong"}),
    ],
)
def test_targets_are_constants(name: str, learned_from: set[str]) -> None:
    method = make_method(name, {})
    method.prepare(Task(classes=3, features=3, unlabeled=6))
    model, teacher = Table(fixed_logits(3.0).float()), Table(fixed_logits(1.0).float())
    batch = fixed_batch(method.unlabeled_views, torch.arange(6))
    method(model, batch, Context(2, 10, teacher, torch.Generator())).total.backward()
    assert model.logits.grad is not None
    moved = model.logits.grad.abs().sum(1)
    parts = dict(zip(["labeled", "weak", "strong", "second weak"], moved.split([4, 6, 6, 6]), strict=True))
    assert {part for part, sizes in parts.items() if sizes.sum() > 0} == learned_from
    assert teacher.logits.grad is None


@pytest.mark.parametrize("name", ORACLES)
def test_very_large_logits_give_finite_losses_and_gradients_in_single_precision(name: str) -> None:
    method = make_method(name, {})
    method.prepare(Task(classes=3, features=3, unlabeled=6))
    for sign in (1, -1):
        model = Table(fixed_logits(sign * 1000.0).float())
        batch = fixed_batch(method.unlabeled_views, torch.arange(6))
        losses = method(model, batch, Context(2, 10, model, torch.Generator()))
        losses.total.backward()
        assert all(torch.isfinite(part) for part in [losses.total, *losses.parts.values()])
        assert model.logits.grad is not None
        assert torch.isfinite(model.logits.grad).all()
        assert all(torch.isfinite(buffer).all() for buffer in method.buffers())


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
    # Losses of confident rows count from the first step on.
    eager = {"threshold": 1e-9} if "threshold" in vars(make_method(name, {})) else {}
    state = tiny_state(split, settings, name, **eager)
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
