"""What every method must do. A method added to the table is tested here by itself, once it has an oracle."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lookup import UNLABELED, lookup_step, losses_of, prepared, random_model
from naive_methods import ORACLES
from tiny import CPU, tiny_settings, tiny_split, tiny_state

from rankingmatch.augment import CTAugment
from rankingmatch.data import Split
from rankingmatch.methods import METHODS, hyperparameters_of, make_method
from rankingmatch.methods.rebalancing import REMEDIES
from rankingmatch.runs.checkpoint import restore_latest, save_checkpoint
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import train, training_step

every_method = pytest.mark.parametrize("name", METHODS)


# --- the loss, against loops written from the paper ---------------------------------------------------------

# Other values of the hyperparameters than their defaults, and what they need to make a difference.
OTHERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("unlabeled_weight", "ranking_weight", "contrastive_weight", "instance_weight"), (0.3,)),
    **dict.fromkeys(("distance_weight", "rotation_weight", "smoothing", "graph_threshold"), (0.3,)),
    **dict.fromkeys(("threshold", "statistics_decay", "relative_threshold", "least_loss"), (0.6,)),
    **{"uniform_alignment": (False,), "soft_margin": (False,), "l2_normalize": (False, True)},
    **dict.fromkeys(("squared", "true_mean", "true_triplets", "rank_all"), (True,)),
    **{"fairness_weight": (1.0,), "lowest_threshold": (0.9,), "highest_threshold": (0.4,), "sigmas": (0.5,)},
    **{"sharpening": (0.9,), "tsa": ("linear", "exp", "log"), "ramp": (0.0, 0.8), "ranking_ramp": (0.8,)},
    **{"loss_decay": (1.1,), "warm_up": (0.3,), "memory": (7, 25), "similarity_temperature": (0.7,)},
    **{"dimensions": (3,), "embedding_decay": (0.2,), "class_margin": (2.0,), "label_smoothing": (0.1,)},
    **{"margin": (0.1,), "temperature": (0.9,), "similarity": ("dot", "cosine"), "rank_on": ("features",)},
}
WITH: dict[str, dict[str, Any]] = {
    "dash": {"loss_decay": 1.02},
    "comatch": {"memory": 20, "threshold": 0.5},  # full from the second step on; a batch wraps around its end
    "simmatch": {"threshold": 0.5},
    "rankingmatch-ct": {"l2_normalize": False, "similarity": "dot"},
    "rankingmatch-bm+ct": {"l2_normalize": False, "similarity": "dot"},
}
AROUND = ("rebalance", "rebalance_strength")  # of the outputs, not of the loss


def cases(name: str) -> list[dict[str, Any]]:
    """The defaults, and each hyperparameter with other values."""
    own = [one.name for one in hyperparameters_of(name) if one.name not in AROUND]
    return [{}, *({**WITH.get(name, {}), one: value} for one in own for value in OTHERS[one])]


@every_method
def test_there_is_an_oracle(name: str) -> None:
    apart = ("test_mixing.py", "test_generative.py", "test_vat.py")
    own = [text for text in (Path(__file__).with_name(file).read_text() for file in apart) if f'"{name}"' in text]
    assert name in ORACLES or any("equals_an_independent_computation(" in text for text in own)


def totals_and_expected(name: str, given: dict[str, Any], scale: float, count: int) -> tuple[list[float], list[float]]:
    """The losses of some steps, and those of plain loops."""
    method, teacher = prepared(name, **given), random_model(scale, 99)
    models = [random_model(scale, seed) for seed in range(count)]
    steps = [lookup_step(method, model, teacher, number) for number, model in enumerate(models)]
    losses = [losses_of(method, model, number, teacher=teacher) for number, model in enumerate(models)]
    return [one.total.item() for one in losses], ORACLES[name](method, steps)


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("name", ORACLES)
def test_loss_equals_an_independent_computation(name: str, scale: float) -> None:
    for given in cases(name):
        totals, expected = totals_and_expected(name, given, scale, 7)
        assert totals == pytest.approx(expected, rel=1e-9), given


@pytest.mark.parametrize("name", ORACLES)
def test_every_hyperparameter_makes_a_difference(name: str) -> None:
    def expected(given: dict[str, Any]) -> list[float]:
        return [total for scale in (1.0, 4.0) for total in totals_and_expected(name, given, scale, 7)[1]]

    base = WITH.get(name, {})
    usual = expected(base)
    for one in (one.name for one in hyperparameters_of(name) if one.name not in AROUND):
        assert any(expected({**base, one: value}) != pytest.approx(usual, rel=1e-6) for value in OTHERS[one]), one


@pytest.mark.parametrize(("name", "count"), [("adamatch", 130), ("comatch", 35), ("simmatch", 35)])
def test_mean_predictions_forget_old_batches(name: str, count: int) -> None:
    totals, expected = totals_and_expected(name, {}, 1.0, count)
    assert totals == pytest.approx(expected, rel=1e-9)


# The unlabeled views that a method learns from; the others are only targets.
LEARNED_FROM = {
    **{"supervised": set(), "pseudo-label": {0}, "pi-model": {1}, "mean-teacher": {0}},
    **{"comatch": {1}, "sequencematch": {1, 2}, "finessl": {1, 2}},
}


@pytest.mark.parametrize("name", ORACLES)
def test_targets_are_constants(name: str) -> None:
    threshold = {"threshold": 0.5} if "threshold" in vars(make_method(name)) else {}
    method, model, teacher = prepared(name, **threshold), random_model(4.0), random_model(4.0, 1)
    losses_of(method, model, teacher=teacher).total.backward()
    assert model.logits.grad is not None
    sizes = [4 * len(method.labeled_views), *[UNLABELED] * len(method.unlabeled_views)]
    labeled, *views = model.logits.grad[: sum(sizes)].abs().sum(1).split(sizes)
    assert labeled.sum() > 0
    assert {number for number, moved in enumerate(views) if moved.sum() > 0} == LEARNED_FROM.get(name, {1})
    assert teacher.logits.grad is None
    assert all(parameter.grad is not None for parameter in method.parameters())


@pytest.mark.parametrize(("name", "moved", "constant"), [
    ("comatch", slice(10, 22), slice(0, 10)),  # embeddings of labeled and weak views only give targets
    ("simmatch", slice(10, 16), slice(0, 10)),
    ("crmatch", slice(4, 16), slice(0, 4)),  # weak and strong views move apart
    ("finessl", slice(0, 0), slice(0, 22)),  # the auxiliary head trains no features
])  # fmt: skip
def test_features_are_trained_where_they_should_be(name: str, moved: slice, constant: slice) -> None:
    model, method = random_model(1000.0), prepared(name)
    losses_of(method, model).total.backward()
    sizes = torch.zeros(40) if model.features.grad is None else model.features.grad.abs().sum(1)
    assert sizes[constant].sum() == 0
    assert sizes[moved].sum() > 0 or name == "finessl"


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("scale", [1000.0, -1000.0, 0.0])
def test_extreme_logits_give_finite_losses_and_gradients_in_single_precision(name: str, scale: float) -> None:
    method, model = prepared(name).float(), random_model(scale).float()
    for step in range(3):
        losses = losses_of(method, model, step)
        losses.total.backward()
        assert all(torch.isfinite(part) for part in [losses.total, *losses.parts.values()])
        assert model.logits.grad is not None
        assert torch.isfinite(model.logits.grad).all()
        assert all(torch.isfinite(value).all() for value in method.state_dict().values())


@pytest.mark.parametrize("name", ORACLES)
def test_losses_hardly_depend_on_autocast(name: str) -> None:
    method, model = prepared(name).float(), random_model(2.0).float()
    other = copy.deepcopy(method)
    for step in range(3):
        exact = losses_of(method, model, step).total
        with torch.autocast("cpu", torch.bfloat16):
            rounded = losses_of(other, model, step).total
        assert rounded.dtype == torch.float32
        # Similarities are computed in full precision; linear heads for auxiliary losses are not.
        tolerance = 1e-2 if name in ("crmatch", "finessl") else 1e-6
        assert rounded.item() == pytest.approx(exact.item(), rel=tolerance)


# --- training -----------------------------------------------------------------------------------------------


@every_method
def test_every_trainable_parameter_gets_a_gradient_and_moves(name: str) -> None:
    split, settings = tiny_split(), tiny_settings()
    # Losses of confident rows count from the first step on.
    eager = {"threshold": 1e-9} if "threshold" in vars(make_method(name)) else {}
    state = tiny_state(split, settings, name, **eager)
    before = {key: value.clone() for key, value in state.objective.named_parameters()}
    batch, _ = make_batch(split, state.objective.method, state.views, settings, 0, CPU)
    training_step(state, batch, settings)
    for key, parameter in state.objective.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key
        assert not torch.equal(parameter, before[key]), key


@pytest.mark.parametrize(
    ("name", "given"), [*((name, {}) for name in METHODS), *(("fixmatch-ra", {"rebalance": one}) for one in REMEDIES)]
)
def test_resuming_from_a_checkpoint_is_bit_exact(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    split, settings = tiny_split(labeled=7), tiny_settings(steps=7)
    given = {"threshold": 0.3, **given} if given else {}
    whole, resumed = (tiny_state(split, settings, name, **given) for _ in range(2))
    for record in train(whole, split, settings):
        if record.step == 5:  # in the middle of a logging window; DARP has refined at step 3
            save_checkpoint(tmp_path, whole)
    assert restore_latest(tmp_path, resumed)
    assert [record.step for record in train(resumed, split, settings)] == [6, 7]
    for key, policy in whole.views.items():
        if isinstance(policy, CTAugment):
            learned = resumed.views[key]
            assert isinstance(learned, CTAugment)
            assert torch.equal(learned.rates, policy.rates)
            assert (policy.rates < 1).any()
    for mine, theirs in ((whole.objective, resumed.objective), (whole.ema, resumed.ema)):
        expected = mine.state_dict()
        for key, value in theirs.state_dict().items():
            assert torch.equal(value, expected[key]), key


SPLITS = {
    "two classes in color": tiny_split(2, 3),
    "200 classes": tiny_split(200),
    "constant images": replace(tiny_split(), images=np.full_like(tiny_split().images, 7)),
    "oblong images": replace(tiny_split(), images=tiny_split().images[:, :, :6]),
    "a pool smaller than a batch": tiny_split(unlabeled=1),
}


@every_method
@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_losses_are_finite_on_any_data_whether_all_or_no_rows_are_confident(name: str, split: Split) -> None:
    settings = tiny_settings(steps=3)
    for threshold in (1e-9, 1.0) if "threshold" in vars(make_method(name)) else (None,):
        state = tiny_state(split, settings, name, **({} if threshold is None else {"threshold": threshold}))
        for record in train(state, split, settings):
            if record.metrics:
                assert all(math.isfinite(value) for value in record.metrics.losses.values())
