"""The loop: what a step does to the weights, what it says, and when it refuses to go on."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import CPU, VIEW_SETTINGS, VIEWS, tiny_settings, tiny_split, tiny_state
from torch import Tensor, nn

from rankingmatch.augment import CTAugment, Weak, view_policies
from rankingmatch.core.errors import DataError, DivergedError
from rankingmatch.core.randomness import Purpose
from rankingmatch.core.schedule import cosine
from rankingmatch.data import rows_of_step
from rankingmatch.methods import Batch, Context, Losses, Method, make_method
from rankingmatch.networks import NetworkSettings, Output
from rankingmatch.training.batches import make_batch, make_probes
from rankingmatch.training.loop import learn_from_probe, train, training_step, update_ema
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import initial_state, make_optimizer


@pytest.mark.parametrize(
    ("settings", "steps", "interval"),
    [
        (TrainSettings(), 131_072, 1024),
        (TrainSettings(batch_size=32), 262_144, 2048),
        (TrainSettings(epochs=0.5), 512, 25),
        (TrainSettings(steps=1000), 1000, 50),
        (TrainSettings(steps=3), 3, 1),
    ],
)
def test_an_epoch_is_65536_labeled_images_and_there_are_at_least_twenty_evaluations(
    settings: TrainSettings, steps: int, interval: int
) -> None:
    assert (settings.total_steps, settings.evaluation_interval) == (steps, interval)


def test_weight_decay_spares_biases_and_norms() -> None:
    objective = tiny_state(tiny_split(), tiny_settings()).objective
    decayed, spared = make_optimizer(objective, TrainSettings(weight_decay=0.1)).param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    weights = [m.weight for m in objective.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert {id(p) for p in decayed["params"]} == {id(w) for w in weights}
    assert len(decayed["params"]) + len(spared["params"]) == len(list(objective.parameters()))


def test_ema_averages_weights_and_copies_batchnorm_statistics() -> None:
    ema, model = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    with torch.no_grad():
        ema.weight.fill_(1.0)
        model.weight.fill_(3.0)
        model.running_mean.fill_(5.0)  # type: ignore[union-attr]
    update_ema(ema, model, decay=0.75)
    assert ema.weight.tolist() == [1.5, 1.5]
    assert ema.running_mean.tolist() == [5.0, 5.0]  # type: ignore[union-attr]


class Quadratic(Method):
    """Loss w² / 2 of the head's first weight: its gradient is the weight, so SGD can be followed by hand."""

    unlabeled_views = ()

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        loss = model.backbone.head.weight[0, 0].square() / 2  # type: ignore[union-attr, index]
        return Losses(loss, {"quadratic": loss})


def test_steps_are_nesterov_sgd_with_cosine_decay_followed_by_ema() -> None:
    split = tiny_split()
    settings = tiny_settings(steps=5, weight_decay=0.0, momentum=0.9)
    state = initial_state(split, Quadratic(), NetworkSettings("wrn-10-1"), VIEW_SETTINGS, settings, CPU)
    head: Tensor = state.model.backbone.head.weight.detach()  # type: ignore[union-attr, operator]
    weight = average = float(head[0, 0])
    velocity = 0.0
    for step in range(5):
        batch, _ = make_batch(split, state.objective.method, state.views, settings, step, CPU)
        training_step(state, batch, settings)
        gradient = weight
        velocity = 0.9 * velocity + gradient
        weight -= cosine(0.05, step, 5) * (gradient + 0.9 * velocity)
        decay = min(0.999, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * weight
        assert float(head[0, 0]) == pytest.approx(weight, rel=1e-5)
        assert float(state.ema.backbone.head.weight[0, 0]) == pytest.approx(average, rel=1e-5)  # type: ignore[union-attr, index]


def test_batches_and_probes_depend_on_seed_and_step_alone_and_probes_are_the_labeled_images() -> None:
    split, method = tiny_split(), make_method("fixmatch-cta", {})
    views = view_policies(replace(VIEW_SETTINGS, strong="ctaugment"))

    def tensors(seed: int, step: int) -> list[torch.Tensor]:
        batch, truth = make_batch(split, method, views, tiny_settings(seed=seed), step, CPU)
        (probe,) = make_probes(split, method, views, tiny_settings(seed=seed), step, CPU)
        assert torch.equal(probe.labels, batch.labels)
        return [probe.images, *batch.unlabeled, *batch.labeled, batch.labels, batch.rows, truth]

    first = tensors(0, 3)
    assert all(torch.equal(a, b) for a, b in zip(first, tensors(0, 3), strict=True))
    for others in (tensors(0, 4), tensors(1, 3)):
        assert not any(torch.equal(a, b) for a, b in zip(first[:2], others[:2], strict=True))


def test_a_batch_has_the_views_asked_for_and_the_truth_beside_it() -> None:
    split = tiny_split(channels=3)
    batch, truth = make_batch(split, make_method("fixmatch-ra", {}), VIEWS, tiny_settings(), 0, CPU)
    assert [view.shape for view in batch.labeled] == [(6, 3, 8, 8)]
    assert [view.shape for view in batch.unlabeled] == [(12, 3, 8, 8)] * 2
    assert not torch.equal(batch.unlabeled[0], batch.unlabeled[1])
    assert torch.equal(truth, torch.from_numpy(split.truth[split.unlabeled_rows])[batch.rows])


def test_the_networks_own_randomness_depends_on_seed_and_step_too() -> None:
    split, settings = tiny_split(), tiny_settings(steps=4)

    def weights(seed: int) -> tuple[Tensor, Tensor]:
        network = NetworkSettings("own_network:linear_network")
        torch.manual_seed(seed)
        state = initial_state(split, make_method("fixmatch-ra", {}), network, VIEW_SETTINGS, settings, CPU)
        drawn = torch.stack([torch.rand(1) for _ in train(state, split, settings)])
        return torch.cat([p.flatten() for p in state.model.parameters()]), drawn

    (first, drawn), (second, others) = weights(11), weights(12)
    assert torch.equal(first, second)
    assert not torch.equal(drawn, others)
    torch.manual_seed(11)  # the caller's own random numbers are as if nothing had been trained
    assert torch.equal(drawn, torch.stack([torch.rand(1) for _ in range(4)]))


def test_records_come_after_every_step_with_metrics_and_evaluations_when_due() -> None:
    split, settings = tiny_split(), tiny_settings(steps=7)
    state = tiny_state(split, settings)
    records = list(train(state, split, settings))
    assert [r.step for r in records] == [1, 2, 3, 4, 5, 6, 7]
    assert [r.step for r in records if r.metrics] == [2, 3, 4, 6, 7]
    assert [r.step for r in records if r.evaluation] == [3, 6, 7]
    last = records[-1]
    assert last.metrics is not None
    parts = last.metrics.losses
    assert set(parts) == {"labeled_ce", "unlabeled_ce", "labeled_rank", "unlabeled_rank", "total"}
    assert parts["total"] == pytest.approx(sum(value for name, value in parts.items() if name != "total"))
    assert last.metrics.learning_rate == pytest.approx(cosine(0.05, 6, 7))


def test_metrics_average_the_steps_since_the_last_log() -> None:
    split, settings = tiny_split(), tiny_settings(steps=2)
    by_hand = tiny_state(split, settings)
    totals = []
    for step in range(2):
        batch, _ = make_batch(split, by_hand.objective.method, VIEWS, settings, step, CPU)
        totals.append(float(training_step(by_hand, batch, settings).total.detach()))
    (record,) = [r for r in train(tiny_state(split, settings), split, settings) if r.metrics]
    assert record.metrics is not None
    assert record.metrics.losses["total"] == pytest.approx(sum(totals) / 2)


class Oracle(Method):
    """Believes that every unlabeled image is of class 0, and is confident of the first half."""

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        from rankingmatch.methods import PseudoLabels

        loss = model(batch.labeled[0]).logits.sum() * 0
        count = len(batch.unlabeled[0])
        pseudo = PseudoLabels(torch.zeros(count, dtype=torch.long), torch.arange(count) < count // 2)
        return Losses(loss, {"nothing": loss}, pseudo)


def test_share_and_purity_of_pseudo_labels_are_measured_where_truth_is_known() -> None:
    split, settings = tiny_split(unlabeled=30), tiny_settings(steps=2)
    truth = split.truth.copy()
    truth[split.unlabeled_rows[::2]] = -1
    split = replace(split, truth=truth)
    state = initial_state(split, Oracle(), NetworkSettings("wrn-10-1"), VIEW_SETTINGS, settings, CPU)
    confident, right, known = 0, 0, 0
    for step in range(2):
        _, batch_truth = make_batch(split, state.objective.method, state.views, settings, step, CPU)
        first_half = batch_truth[:6]
        confident += 6
        known += int((first_half >= 0).sum())
        right += int((first_half == 0).sum())
    (record,) = [r for r in train(state, split, settings) if r.metrics]
    assert record.metrics is not None
    assert record.metrics.confident == pytest.approx(confident / 24)
    assert record.metrics.purity == pytest.approx(right / known)


class DivergesAt(Method):
    """A loss whose part `sick` is NaN from a given step on."""

    unlabeled_views = ()

    def __init__(self, step: int) -> None:
        nn.Module.__init__(self)
        self.step = step

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        well = model(batch.labeled[0]).logits.square().mean()
        sick = well * (math.nan if context.step >= self.step else 1.0)
        return Losses(well + sick, {"well": well, "sick": sick})


@pytest.mark.parametrize("bad_step", [0, 4, 5])
def test_a_non_finite_loss_stops_training_and_names_step_and_part(bad_step: int) -> None:
    split, settings = tiny_split(), tiny_settings(steps=12, log_every=4, evaluate_every=12)
    state = initial_state(split, DivergesAt(bad_step), NetworkSettings("wrn-10-1"), VIEW_SETTINGS, settings, CPU)
    with pytest.raises(DivergedError, match=f"'sick' became non-finite at step {bad_step}"):
        list(train(state, split, settings))


def test_a_state_whose_weights_are_not_finite_is_refused() -> None:
    state = tiny_state(tiny_split(), tiny_settings())
    state.raise_if_diverged()
    with torch.no_grad():
        next(state.objective.parameters()).view(-1)[3] = math.inf
    with pytest.raises(DivergedError, match="'weights' became non-finite"):
        state.raise_if_diverged()


def test_a_method_that_needs_unlabeled_images_says_so_when_there_are_none() -> None:
    split = tiny_split(labeled=12, unlabeled=0)
    with pytest.raises(DataError, match="needs unlabeled images"):
        tiny_state(split, tiny_settings())
    tiny_state(split, tiny_settings(), "supervised")


def test_the_best_validation_error_is_remembered() -> None:
    split, settings = tiny_split(), tiny_settings(steps=9)
    state = tiny_state(split, settings)
    best: Any = None
    for record in train(state, split, settings):
        if record.evaluation:
            assert record.evaluation.validation is not None
            error = record.evaluation.validation.error
            assert record.evaluation.best == (best is None or error < best)
            best = error if record.evaluation.best else best
    assert state.best_error == best


def test_batchnorm_momentum_follows_the_length_of_the_run_or_the_setting() -> None:
    def momentum(steps: int, setting: float | None) -> set[float]:
        network = NetworkSettings("wrn-10-1", setting)
        state = initial_state(
            tiny_split(), make_method("supervised", {}), network, VIEW_SETTINGS, tiny_settings(steps), CPU
        )
        return {m.momentum for m in state.model.modules() if isinstance(m, nn.BatchNorm2d) and m.momentum}

    assert momentum(100, None) == {0.1}
    assert momentum(131_072, None) == {0.001}
    assert momentum(100, 0.3) == {0.3}


# --- views that learn ---------------------------------------------------------------------------------------


class Known(nn.Module):
    """A model whose logits are known."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, images: Tensor) -> Output:
        return Output(self.logits, self.logits)


def test_a_probe_scores_its_policy_by_the_distance_to_the_label() -> None:
    split, settings = tiny_split(), tiny_settings()
    policy = CTAugment(Weak(padding=1), operations=1)
    (probe,) = make_probes(split, make_method("fixmatch-cta", {}), {"weak": Weak(), "strong": policy}, settings, 0, CPU)
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    learn_from_probe(probe, Known(logits))
    expected = CTAugment(operations=1)
    proximities = []
    for row, label in zip(logits.softmax(1).tolist(), probe.labels.tolist(), strict=True):
        proximities.append(1 - sum(abs(p - (c == label)) for c, p in enumerate(row)) / 2)
    expected.learn(probe.draw, torch.tensor(proximities, dtype=torch.float64))
    torch.testing.assert_close(policy.rates, expected.rates)
    assert (policy.rates != 1).sum() > 0


@pytest.mark.parametrize("name", ["rankingmatch-bm", "fixmatch-ra", "realmix"])
def test_every_method_with_strong_views_can_learn_them(name: str) -> None:
    split, settings = tiny_split(), tiny_settings(steps=4)
    learning = replace(VIEW_SETTINGS, strong="ctaugment")
    network = NetworkSettings("wrn-10-1")
    state = initial_state(split, make_method(name, {}), network, learning, settings, CPU)
    list(train(state, split, settings))
    strong = state.views["strong"]
    assert isinstance(strong, CTAugment)
    assert 4 < int((strong.rates < 1).sum()) <= 4 * 6 * 2


def test_in_bfloat16_the_network_computes_in_it_and_the_losses_do_not() -> None:
    split, settings = tiny_split(), replace(tiny_settings(), precision="bfloat16")
    state = tiny_state(split, settings)
    seen: list[torch.dtype] = []
    convolution = next(module for module in state.model.modules() if isinstance(module, nn.Conv2d))
    convolution.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    batch, _ = make_batch(split, state.objective.method, VIEWS, settings, 0, CPU)
    losses = training_step(state, batch, settings)
    assert set(seen) == {torch.bfloat16}
    assert {value.dtype for value in (losses.total, *losses.parts.values())} == {torch.float32}
    assert {parameter.dtype for parameter in state.model.parameters()} == {torch.float32}
    state.raise_if_diverged()


def test_a_batch_has_the_indices_of_its_labeled_images() -> None:
    whole = tiny_split(labeled=9)
    # In any order, and drawn more than once, as if classes are balanced.
    split = replace(whole, labeled_rows=whole.labeled_rows[::-1], drawn_rows=whole.labeled_rows.repeat(2))
    settings = tiny_settings()
    drawn = set()
    for step in range(6):
        batch, _ = make_batch(split, make_method("simmatch"), VIEWS, settings, step, CPU)
        rows = split.labeled_rows[batch.labeled_rows.numpy()]
        expected = rows_of_step(split.drawn_rows, 6, settings.seed, Purpose.LABELED_ROWS, step)
        assert rows.tolist() == expected.tolist()
        drawn.update(batch.labeled_rows.tolist())
    assert drawn == set(range(9))
