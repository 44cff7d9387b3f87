"""Runs of every method, for one process or, under torchrun, for several: `python -m divided FILE METHOD…`."""

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tiny import CPU, VIEW_SETTINGS, tiny_settings, tiny_split
from torch import Tensor

from rankingmatch.augment import CTAugment
from rankingmatch.core.distributed import (
    any_process,
    average_statistics,
    from_first_process,
    gathered,
    is_first,
    on_all_processes,
    own_rows,
    process_group,
    rank,
    scattered,
    world_size,
)
from rankingmatch.core.errors import DataError
from rankingmatch.losses import batch_all_triplet, batch_hard_triplet, batch_mean_triplet, contrastive, over_processes
from rankingmatch.methods import find_method, make_method
from rankingmatch.networks import NetworkSettings
from rankingmatch.training.loop import train
from rankingmatch.training.state import initial_state

# Pseudo-labels that count from the first steps on.
EAGER = {
    "threshold": 0.4,
    "ramp": 0.1,
    "statistics_decay": 0.5,
    "memory": 64,
    "distance_weight": 0.1,  # its gradient has a jump where a cosine is 0, which amplifies rounding
    "relative_threshold": 0.5,
    "loss_decay": 1.01,
}


# VAT takes a difference at a distance of 1e-3, so its rounding shows, SWWAE has switches, and Dash learns from soft
# targets of all rows. With CReST, rounding errors of 1e-7 grow to 3e-5 within these steps.
NETWORKS = dict.fromkeys(("vat", "dash", "fixmatch-ra@crest"), "DoubleNetwork") | {"swwae": "DoubleEncoder"}


def trained(name: str, steps: int = 20) -> dict[str, Any]:
    """The losses of every step and the errors of every evaluation, and what all processes must agree on at the end.

    7 labeled and 21 unlabeled rows cannot be divided evenly by any small number. METHOD@REMEDY is a method with a
    remedy for unbalanced classes.
    """
    network = f"own_network:{NETWORKS.get(name, 'GroupNormNetwork')}"  # without BatchNorm
    name, _, remedy = name.partition("@")
    split = tiny_split(labeled=10 if remedy else 9, unlabeled=50)
    settings = tiny_settings(steps, batch_size=7, mu=3, evaluate_every=10, log_every=1)
    known = vars(make_method(name, {}))
    rebalance = {"rebalance": remedy} if remedy else {}
    method = make_method(name, rebalance | {key: value for key, value in EAGER.items() if key in known})
    views = replace(VIEW_SETTINGS, strong=find_method(name).preset.get("strong", "randaugment"))
    state = initial_state(split, method, NetworkSettings(network), views, settings, CPU)
    records = list(train(state, split, settings))
    rates = [policy.rates for policy in state.views.values() if isinstance(policy, CTAugment)]
    tensors = [*state.objective.state_dict().values(), *state.ema.state_dict().values(), *state.window.sums.values()]
    tensors += rates
    return {
        "losses": [record.metrics.losses for record in records if record.metrics],
        "confident": [record.metrics.confident for record in records if record.metrics],
        "errors": [one.evaluation.test.error for one in records if one.evaluation and one.evaluation.test],
        "weights": {key: value.flatten().tolist() for key, value in state.ema.state_dict().items()},
        "buffers": [value.flatten().tolist() for value in method.buffers()],
        "rates": [one.flatten().tolist() for one in rates],
        "digest": hashlib.sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hexdigest(),
    }


def check_rows() -> None:
    """Rows that are divided and gathered come back in order, and so do their gradients."""
    for total in range(1, 8):
        whole = torch.arange(2.0 * total).view(total, 2)
        assert torch.equal(gathered(own_rows(whole), total), whole)
        weight, factor = torch.tensor(2.0, requires_grad=True), torch.arange(1.0, total + 1)[:, None]
        given = whole.clone().requires_grad_()
        (gathered(weight * scattered(given) ** 2, total) * factor).sum().backward()
        assert given.grad is not None
        assert torch.equal(given.grad, 4 * whole * factor)
        assert weight.grad is not None
        dist.all_reduce(weight.grad)  # as DDP averages
        assert weight.grad / world_size() == (whole**2 * factor).sum()


def check_ranking() -> None:
    """The parts of a ranking loss that the processes compute are together the loss, and so are their gradients."""
    generator = torch.Generator().manual_seed(0)
    for count in (3, 37, 130):
        rows = torch.randn(count, 6, generator=generator)
        labels, mask = torch.randint(4, (count,), generator=generator), torch.arange(count) % 3 > 0
        for loss in (batch_all_triplet, batch_hard_triplet, batch_mean_triplet, contrastive):
            for options in ({}, {"mask": mask}, {"mask": mask & (labels == 1), "l2_normalize": False}):
                one, several = rows.clone().requires_grad_(), rows.clone().requires_grad_()
                expected, value = loss(one, labels, **options), over_processes(loss, several, labels, **options)
                expected.backward()
                value.backward()
                assert one.grad is not None
                assert several.grad is not None
                assert value.item() == pytest.approx(expected.item(), abs=1e-6)
                assert (several.grad - one.grad).abs().max() < 1e-6


def check_statistics() -> None:
    """Statistics are averaged; what is the same everywhere stays the same to the last bit."""
    norm = torch.nn.BatchNorm1d(3)
    norm.register_buffer("same", torch.tensor([0.1, 1e-30, 3e30]))
    assert isinstance(norm.running_mean, Tensor)
    assert isinstance(norm.same, Tensor)
    norm.running_mean += rank()
    average_statistics(norm)
    assert torch.equal(norm.running_mean, torch.full((3,), (world_size() - 1) / 2))
    assert torch.equal(norm.same, torch.tensor([0.1, 1e-30, 3e30]))


def check_failures() -> None:
    """What one process gets wrong, all get wrong; only the first one says it."""

    def fail_on_last() -> str:
        if rank() == world_size() - 1:
            raise DataError("no images here")
        return "fine"

    with pytest.raises(DataError if is_first() else SystemExit):
        on_all_processes(fail_on_last)
    assert on_all_processes(lambda: rank()) == rank()
    assert from_first_process(lambda: f"said by {rank()}") == "said by 0"
    assert any_process(rank() == 1, False) == (True, False)


def main() -> None:
    file, *names = sys.argv[1:]
    torch.set_num_threads(1)
    with process_group():
        check_rows()
        check_ranking()
        check_statistics()
        check_failures()
        found = {name: trained(name) for name in names}
        digests: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(digests, {name: run["digest"] for name, run in found.items()})
        if is_first():
            Path(file).write_text(json.dumps({"runs": found, "digests": digests}))
    # Threads of gloo outlive the process group, and now and then abort the interpreter while it exits.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
