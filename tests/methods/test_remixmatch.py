"""ReMixMatch against loops written from its paper."""

import math
from typing import Any

import naive
import naive_methods
import pytest
import torch
from linear import CLASSES, Linear, fixed_batch, generator, mixed_rows, naive_logits, rows_of
from tiny import CPU, tiny_settings, tiny_split
from torch import Tensor, nn

from rankingmatch.augment import CTAugment
from rankingmatch.core.randomness import Purpose, torch_generator
from rankingmatch.data import rows_of_step
from rankingmatch.methods import Batch, Context, Task, make_method
from rankingmatch.methods.remixmatch import ReMixMatch
from rankingmatch.networks import NetworkSettings, Output, to_tensor
from rankingmatch.runs.config import resolve
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import train
from rankingmatch.training.state import initial_state

# What training has seen so far: labels of each class, and predictions (here of three batches, the other 125 uniform).
COUNTS = [5.0, 2.0, 3.0]
SEEN = [[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.9, 0.05, 0.05]]


def prepared(given: dict[str, Any]) -> ReMixMatch:
    method = ReMixMatch(**given)
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


def naive_parts(h: ReMixMatch, model: Linear) -> dict[str, float]:
    batch = fixed_batch(h)
    views = [rows_of(view) for view in batch.unlabeled]
    believed = naive.mean_of(SEEN + [[1 / CLASSES] * CLASSES] * 125)
    wanted = [count / sum(COUNTS) for count in COUNTS]
    predictions = [naive.softmax(naive_logits(model, row)) for row in views[0]]
    guess = [naive.sharpened(naive_methods.aligned(q, wanted, believed), h.sharpening) for q in predictions]
    source = generator()
    logits, targets = mixed_rows(h, model, batch, guess, source)
    turns = torch.randint(4, (6,), generator=source).tolist()
    costs = [naive.soft_cross_entropy(row, target) for row, target in zip(logits, targets, strict=True)]
    strong = [naive.soft_cross_entropy(naive_logits(model, row), t) for row, t in zip(views[1], guess, strict=True)]
    rotation = []
    for row, turn in zip(views[1], turns, strict=True):
        features = [2 * v + 1 for v in naive_logits(model, turned(row, turn))]
        rotation.append(naive.cross_entropy(naive_methods.linear(h.rotation_head, features), turn))
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
    method, model = prepared(given), Linear(2.0)
    parts = naive_parts(method, model)
    losses = method(model, fixed_batch(method), Context(step, 20, model, generator()))
    for name, value in parts.items():
        assert losses.parts[name].item() == pytest.approx(value, rel=1e-6), name
    expected = parts["labeled_ce"] + method.rotation_weight * parts["rotation_ce"]
    expected += ramp * method.unlabeled_weight * parts["unlabeled_ce"]
    expected += ramp * method.strong_weight * parts["strong_ce"]
    assert losses.total.item() == pytest.approx(expected, rel=1e-6)


class Recorder(nn.Module):
    """Records the batches that the network sees, and which of them update BatchNorm's running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1, affine=False).double()
        self.linear = Linear(2.0)
        self.batches: list[tuple[Tensor, bool]] = []

    def forward(self, images: Tensor) -> Output:
        self.batches.append((images, self.norm.track_running_stats))
        return self.linear(self.norm(images.double()))  # type: ignore[no-any-return]


def test_the_unmixed_and_the_rotated_strong_view_are_batches_of_their_own() -> None:
    method, model = prepared({"guesses": 2}), Recorder()
    batch = fixed_batch(method)
    method(model, batch, Context(1, 20, model, generator()))
    guess, *mixed, unmixed, rotated = model.batches
    assert torch.equal(guess[0], batch.unlabeled[0])
    assert torch.equal(unmixed[0], batch.unlabeled[1])
    assert rotated[0].flatten(1).sort(1).values.equal(batch.unlabeled[1].flatten(1).sort(1).values)
    assert not torch.equal(rotated[0], unmixed[0])
    # B + 3 · 6 mixed rows in four batches, of which the first updates the running statistics.
    assert sum(len(images) for images, _ in mixed) == 4 + 3 * 6
    assert [updates for _, updates in model.batches] == [False, True, False, False, False, False, False]


def test_labeled_images_and_strong_views_come_from_ctaugment_without_a_last_cutout() -> None:
    """With the settings of a dataset of the paper, a batch has what the policy gives without its last square."""
    config = resolve("svhn", "remixmatch", {"guesses": 1, "padding": 1}).config
    split, settings = tiny_split(), tiny_settings()
    method = make_method("remixmatch", config.hyperparameters)
    state = initial_state(split, method, NetworkSettings("wrn-10-1"), config.views, settings, CPU)
    batch, _ = make_batch(split, method, state.views, settings, 0, CPU)
    policy = state.views["strong"]
    assert isinstance(policy, CTAugment)
    rows = rows_of_step(split.drawn_rows, settings.batch_size, settings.seed, Purpose.LABELED_ROWS, 0)
    source = torch_generator(settings.seed, Purpose.LABELED_VIEWS, 0)
    images = to_tensor(split.images[rows], CPU)
    expected = policy.apply_probe(images, policy.draw(len(rows), 8, 8, source))
    assert torch.equal(batch.labeled[0], expected)
    for record in train(state, split, settings):
        if record.metrics:
            assert all(math.isfinite(value) for value in record.metrics.losses.values())
    assert (policy.rates < 1).any()


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
    method = ReMixMatch()
    method.prepare(Task(classes=7, features=0, unlabeled=6))
    assert method.rotation_head.weight.shape == (4, 7)
