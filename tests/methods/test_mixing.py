"""MixUp; MixMatch, RealMix and ReMixMatch against loops written from their papers."""

import math
from typing import Any

import naive
import naive_methods
import pytest
import torch
from linear import CLASSES, LABELS, Linear, fixed_batch, generator, losses_of, mixed_rows, naive_logits, rows_of
from tiny import CPU, tiny_settings, tiny_split
from torch import Tensor, nn

from rankingmatch.augment import CTAugment
from rankingmatch.core.randomness import Purpose, torch_generator
from rankingmatch.data import rows_of_step
from rankingmatch.methods import Context, Task, make_method
from rankingmatch.methods.mixing import draw_mixup, mixup
from rankingmatch.methods.remixmatch import ReMixMatch
from rankingmatch.methods.targets import align_distribution, sharpen
from rankingmatch.networks import NetworkSettings, Output, to_tensor
from rankingmatch.runs.config import resolve
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import train
from rankingmatch.training.state import initial_state


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_every_row_is_mixed_with_its_partner() -> None:
    rows = torch.randn(5, 3, dtype=torch.float64, generator=seeded())
    shares, partners = [1.0, 0.5, 0.75, 0.6, 0.9], [4, 0, 1, 3, 2]
    expected = torch.tensor(naive.mixed(rows.tolist(), shares, partners), dtype=torch.float64)
    torch.testing.assert_close(mixup(rows, torch.tensor(shares, dtype=torch.float64), torch.tensor(partners)), expected)


def test_images_become_float_on_their_own_scale() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    mixed = mixup(images, torch.tensor([0.75, 0.9]), torch.tensor([1, 0]))
    assert mixed.dtype == torch.float32
    assert mixed.flatten().tolist() == pytest.approx([63.75, 229.5])


def test_a_row_keeps_at_least_half_of_itself() -> None:
    # The larger of λ and 1-λ under Beta(1, 1) is uniform in [1/2, 1]; the variance of Beta(α, α) is 1/(4(2α + 1)).
    share, _ = draw_mixup(40_000, 1.0, seeded())
    assert share.min() >= 0.5
    assert share.mean().item() == pytest.approx(0.75, abs=0.005)
    share, _ = draw_mixup(40_000, 0.75, seeded())
    assert (share - 0.5).square().mean().item() == pytest.approx(0.1, abs=0.002)


def test_draws_depend_on_the_generator_alone_and_differ_by_row() -> None:
    (share, partner), again, (other, _) = (draw_mixup(50, 0.75, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(share, again[0])
    assert torch.equal(partner, again[1])
    assert not torch.equal(share, other)
    assert len(share.unique()) == 50
    assert sorted(partner.tolist()) == list(range(50))


def test_sharpening_to_the_extreme_stays_a_distribution() -> None:
    sharp = sharpen(torch.full((1, 200), 1 / 200).index_fill(1, torch.tensor([7]), 2 / 200), 1e-3)
    assert sharp[0, 7].item() == pytest.approx(1.0)
    assert sharp.isfinite().all()


def test_a_class_never_predicted_does_not_break_the_alignment() -> None:
    aligned = align_distribution(torch.tensor([[0.0, 1.0]]), torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
    assert aligned.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("name", ["mixmatch", "realmix", "remixmatch"])
@pytest.mark.parametrize(("scale", "step"), [(0.0, 10), (1e3, 10), (1e6, 10), (1e6, 0)])
def test_extreme_logits_give_finite_losses_and_gradients(name: str, scale: float, step: int) -> None:
    method, model = make_method(name), Linear(scale)
    losses = losses_of(method, model, step)
    losses.total.backward()
    assert losses.total.isfinite()
    for parameter in [*model.parameters(), *method.parameters()]:
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


# --- MixMatch and RealMix --------------------------------------------------------------------------------------

CASES = [(0, 1.0), (0, -1.0), (4, -3.0), (10, 3.0)]  # steps of 10, and scales


def naive_total(h: Any, model: Linear, step: int) -> tuple[float, int, int]:
    """The loss, how many labeled rows count, and how many images have an unlabeled row that does.

    MixMatch is RealMix that leaves nothing out.
    """
    batch = fixed_batch(h)
    guess = []
    for rows in zip(*map(rows_of, batch.unlabeled[: h.guesses]), strict=True):
        mean = naive.mean_of([naive.softmax(naive_logits(model, row)) for row in rows])
        guess.append(naive.sharpened(mean, h.sharpening))
    logits, targets = mixed_rows(h, model, batch, guess)
    done = step / 10
    alpha = {"none": math.inf, "linear": done, "exp": math.exp(5 * (done - 1)), "log": 1 - math.exp(-5 * done)}
    threshold = alpha[getattr(h, "tsa", "none")] * (1 - 1 / CLASSES) + 1 / CLASSES
    kept = [i for i in range(4) if naive.softmax(logits[i])[LABELS[i]] <= threshold]
    labeled = sum(naive.soft_cross_entropy(logits[i], targets[i]) for i in kept) / max(len(kept), 1)
    # The least confident predictions for mixed rows are left out, also of the divisor.
    order = sorted(range(4, len(logits)), key=lambda i: max(naive.softmax(logits[i])))
    used = order[math.floor(getattr(h, "dropped", 0.0) * len(order)) :]
    unlabeled = sum(naive.squared_error(logits[i], targets[i]) for i in used) / len(used)
    ramp = min(1, done / h.ramp) if h.ramp else 1
    return labeled + h.unlabeled_weight * ramp * unlabeled, len(kept), len({(i - 4) % 6 for i in used})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("mixmatch", given) for given in ({}, {"guesses": 1}, {"guesses": 3}, {"alpha": 0.2}, {"ramp": 0.0})),
        *(("realmix", given) for given in ({}, {"strong_views": 0}, {"strong_views": 3, "guesses": 1}, {"ramp": 0.8})),
        *(("realmix", given) for given in ({"tsa": "exp"}, {"tsa": "log"}, {"dropped": 0.0}, {"dropped": 0.7})),
        *((name, {"sharpening": 0.8, "alpha": 2.0, "unlabeled_weight": 1.0}) for name in ("mixmatch", "realmix")),
    ],
)
def test_loss_equals_an_independent_computation(name: str, given: dict[str, Any]) -> None:
    counts = set()
    for step, scale in CASES:
        method, model = make_method(name, given), Linear(scale)
        expected, labeled, images = naive_total(method, model, step)
        losses = losses_of(method, model, step)
        assert losses.total.item() == pytest.approx(expected, rel=1e-9)
        assert losses.pseudo_labels is not None
        assert int(losses.pseudo_labels.confident.sum()) == images
        counts.add(labeled)
    assert max(counts) == 4
    assert len(counts) > 1 or name == "mixmatch"  # some labeled rows are left out


# --- ReMixMatch ------------------------------------------------------------------------------------------------

# What training has seen so far: labels of each class, and predictions (here of three batches, the other 125 uniform).
COUNTS = [5.0, 2.0, 3.0]
SEEN = [[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.9, 0.05, 0.05]]


def remixmatch(given: dict[str, Any]) -> ReMixMatch:
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
def test_loss_of_remixmatch_equals_an_independent_computation(given: dict[str, Any], step: int, ramp: float) -> None:
    method, model = remixmatch(given), Linear(2.0)
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
    method, model = remixmatch({"guesses": 2}), Recorder()
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
    method, model = remixmatch({"guesses": 1}), Linear(2.0)
    batch = fixed_batch(method)
    mean = naive.mean_of([naive.softmax(naive_logits(model, row)) for row in rows_of(batch.unlabeled[0])])
    method(model, batch, Context(130, 1000, model, generator()))
    assert method.predictions[2].tolist() == pytest.approx(mean)  # 130 = 128 + 2
    torch.testing.assert_close(method.predictions[:2], torch.tensor(SEEN[:2], dtype=torch.float64))
    assert method.label_counts.tolist() == [6.0, 4.0, 4.0]
    assert set(method.state_dict()) == {"label_counts", "predictions", "rotation_head.weight", "rotation_head.bias"}
