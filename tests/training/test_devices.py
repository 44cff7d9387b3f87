"""No step waits for the device: batches, views, losses, SGD, EMA and the window run on one that has no numbers.

torch's device "meta" computes shapes only. It refuses to give a number back, to make a shape that depends on numbers,
and to mix with tensors of the CPU: what passes here does not wait for a GPU.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import tiny_settings, tiny_split, tiny_state_on

from rankingmatch.methods import METHODS, make_method
from rankingmatch.methods.rebalancing import REMEDIES
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import training_step
from rankingmatch.training.records import pseudo_label_counts

META = torch.device("meta")
STEPS = 3  # DARP refines in the third

# The list in docs/design.md: what reads numbers in a step, because the sizes of its work depend on them.
EXCEPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("rankingmatch-ba", {}),  # the triplets of each class have a shape of their own
    ("fixmatch-ra", {"rebalance": "darp"}),  # Newton's method stops when it has converged
    ("fixmatch-ra", {"rebalance": "crest"}),  # the sampler draws the images that it has labeled
]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in METHODS),
    *(("fixmatch-ra", {"rebalance": remedy}) for remedy in REMEDIES),
    ("rankingmatch-bm", {"rank_all": True}),
    ("rankingmatch-bm", {"rank_on": "features"}),
    ("rankingmatch-bm", {"true_mean": True}),
    ("rankingmatch-bm", {"soft_margin": False, "squared": True}),
    ("own_methods:Waits", {}),
]


def take_steps(method: str, **hyperparameters: object) -> None:
    """Everything between two logging steps, as `train` does it, on the device without numbers."""
    split, settings = tiny_split(channels=3), replace(tiny_settings(STEPS), precision="bfloat16")
    state = tiny_state_on(META, split, settings, make_method(method, hyperparameters), method)
    for step in range(STEPS):
        batch, truth = make_batch(split, state.objective.method, state.views, settings, step, META)
        losses = training_step(state, batch, settings)
        counts = pseudo_label_counts(losses, truth, len(split.classes))
        state.window.add(step, counts, {**losses.parts, "total": losses.total})
    tensors = [*state.objective.state_dict().values(), *state.ema.state_dict().values(), *state.window.sums.values()]
    assert all(value.is_meta for value in tensors)


@pytest.mark.parametrize(("method", "hyperparameters"), [case for case in CASES if case not in EXCEPTIONS])
def test_no_method_no_remedy_and_no_variant_waits_for_the_device(method: str, hyperparameters: dict[str, Any]) -> None:
    take_steps(method, **hyperparameters)


@pytest.mark.parametrize(("method", "hyperparameters"), EXCEPTIONS)
def test_what_is_listed_as_an_exception_is_one(method: str, hyperparameters: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=r"[Mm]eta"):
        take_steps(method, **hyperparameters)


@pytest.mark.parametrize("mistake", ["item", "rows", "branch", "cpu", "print"])
def test_a_method_that_reads_a_number_or_mixes_devices_is_found(mistake: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=r"[Mm]eta|device"):
        take_steps("own_methods:Waits", mistake=mistake)
