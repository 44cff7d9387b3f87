"""What a checkpoint holds, listed once: named tensors and a few plain values, read from a state and put back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rankingmatch.augment import CTAugment
from rankingmatch.core.distributed import from_first_process, world_size
from rankingmatch.training.records import Window
from rankingmatch.training.state import State

__all__ = ["Snapshot", "check_snapshot", "restore", "share_state", "take_snapshot", "upgrade_tensors"]

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Part:
    """The tensors of a state under one prefix, and what a saved part must look like.

    `optional` parts may lack tensors, as momentum does before the first step.
    """

    prefix: str
    get: Callable[[State], Tensors]
    set: Callable[[State, Tensors], None]
    optional: bool = False


@dataclass(frozen=True)
class Value:
    """A plain value of a state, and the types it may have."""

    get: Callable[[State], Any]
    set: Callable[[State, Any], None]
    types: tuple[type, ...]


def _momentum(state: State) -> Tensors:
    buffers = {name: state.optimizer.state.get(value, {}) for name, value in state.objective.named_parameters()}
    return {name: buffer["momentum_buffer"] for name, buffer in buffers.items() if "momentum_buffer" in buffer}


def _set_momentum(state: State, tensors: Tensors) -> None:
    for name, parameter in state.objective.named_parameters():
        if name in tensors:
            # In the memory layout of the parameter; otherwise each step would have to reorder it.
            state.optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(tensors[name])


def _policies(state: State) -> dict[str, CTAugment]:
    """The views whose policy is learned."""
    return {name: policy for name, policy in state.views.items() if isinstance(policy, CTAugment)}


def _rates(state: State) -> Tensors:
    policies = _policies(state).items()
    return {f"{view}.{name}": rates for view, policy in policies for name, rates in policy.state_dict().items()}


def _set_rates(state: State, tensors: Tensors) -> None:
    for view, policy in _policies(state).items():
        here = ((name, value) for name, value in tensors.items() if name.startswith(f"{view}."))
        policy.load_state_dict({name.removeprefix(f"{view}."): value.cpu() for name, value in here})


PARTS = (
    Part("objective.", lambda state: state.objective.state_dict(), lambda state, new: _load(state.objective, new)),
    Part("ema.", lambda state: state.ema.state_dict(), lambda state, new: _load(state.ema, new)),
    Part("views.", _rates, _set_rates),
    Part("momentum.", _momentum, _set_momentum, optional=True),
    Part(
        "window.sums.", lambda state: state.window.sums, lambda state, new: state.window.sums.update(new), optional=True
    ),
    Part("window.bad.", lambda state: state.window.bad, lambda state, new: state.window.bad.update(new), optional=True),
)
VALUES = {
    "step": Value(lambda state: state.step, lambda state, new: setattr(state, "step", new), (int,)),
    "seconds": Value(lambda state: state.seconds, lambda state, new: setattr(state, "seconds", new), (int, float)),
    "best_error": Value(
        lambda state: state.best_error,
        lambda state, new: setattr(state, "best_error", new),
        (int, float, type(None)),
    ),
    "window_count": Value(
        lambda state: state.window.count,
        lambda state, new: setattr(state, "window", Window(new)),
        (int,),
    ),
}


def _load(module: torch.nn.Module, tensors: Tensors) -> None:
    module.load_state_dict(tensors)


@dataclass(frozen=True)
class Snapshot:
    """The tensors and values of a state at one step."""

    tensors: Tensors
    values: dict[str, Any]


def take_snapshot(state: State) -> Snapshot:
    """A copy of everything that a checkpoint holds, on the CPU."""
    tensors = {part.prefix + name: contiguous_copy(value) for part in PARTS for name, value in part.get(state).items()}
    return Snapshot(tensors, {name: value.get(state) for name, value in VALUES.items()})


def contiguous_copy(value: Tensor) -> Tensor:
    """A tensor as safetensors needs it: on the CPU, contiguous, sharing memory with no other (tied weights do)."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def upgrade_tensors(tensors: Tensors) -> Tensors:
    """The tensors of an older checkpoint under today's names: rates were one matrix for all operations of a view."""
    matrices = {name for name in tensors if name.startswith("views.") and name.endswith(".rates")}
    upgraded = {name: value for name, value in tensors.items() if name not in matrices}
    for name in matrices:
        policy = CTAugment()
        policy.load_state_dict({"rates": tensors[name]})
        upgraded |= {name.removesuffix("rates") + operation: rates for operation, rates in policy.state_dict().items()}
    return upgraded


def check_snapshot(snapshot: Snapshot, state: State) -> None:
    """Raise ValueError unless a snapshot fits a state, before any of it is applied."""
    for name, expected in VALUES.items():
        value = snapshot.values.get(name, "missing")
        if type(value) not in expected.types or (type(value) is int and value < 0):
            raise ValueError(f"its {name} is {value!r}")
    if unknown := snapshot.values.keys() - VALUES.keys():
        raise ValueError(f"it has unknown values: {', '.join(sorted(unknown))}")
    parts = [part for part in PARTS if not part.optional]
    required = {part.prefix + name: value.shape for part in parts for name, value in part.get(state).items()}
    for name, shape in required.items():
        if name not in snapshot.tensors or snapshot.tensors[name].shape != shape:
            raise ValueError(f"it has no {name} of shape {tuple(shape)}; has the network changed?")
    momentum = {f"momentum.{name}": value.shape for name, value in state.objective.named_parameters()}
    for name, value in snapshot.tensors.items():
        in_window = name.startswith("window.") and value.ndim <= 1
        if not in_window and value.shape != {**required, **momentum}.get(name):
            raise ValueError(f"it has an unknown tensor {name} of shape {tuple(value.shape)}")


def restore(state: State, snapshot: Snapshot) -> None:
    """Put a state back to a snapshot that fits it."""
    for name, value in VALUES.items():
        value.set(state, snapshot.values[name])
    for part in PARTS:
        under = ((name, value) for name, value in snapshot.tensors.items() if name.startswith(part.prefix))
        part.set(state, {name.removeprefix(part.prefix): value.to(state.device) for name, value in under})


def share_state(state: State) -> None:
    """Copy the state of the first process, which alone has read a checkpoint, to all others."""
    if world_size() > 1:
        restore(state, from_first_process(lambda: take_snapshot(state)))
