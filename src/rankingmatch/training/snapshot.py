"""What a checkpoint holds, listed once: named tensors and a few plain values, read from a state and put back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from rankingmatch.augment import CTAugment
from rankingmatch.core.distributed import from_first_process, world_size
from rankingmatch.training.records import Window
from rankingmatch.training.state import State

__all__ = ["Snapshot", "check_snapshot", "restore", "share_state", "take_snapshot", "upgrade_tensors"]

Tensors = dict[str, Tensor]
Shapes = dict[str, torch.Size]
T = TypeVar("T")

MOMENTUM = ("momentum_buffer",)  # what SGD stores for each parameter
_LEARNED = {"objective.method.learned": "objective.method.learned.labels"}
ADAM = ("exp_avg", "exp_avg_sq", "step")  # what AdamW stores


@dataclass(frozen=True)
class Part:
    """The tensors of a state under one prefix.

    Without `shapes`, a saved part must have exactly the tensors of the state, with their shapes. With it, tensors may
    be missing, as momentum is before the first step, and those that are there must have these shapes.
    """

    prefix: str
    get: Callable[[State], Tensors]
    set: Callable[[State, Tensors], None]
    shapes: Callable[[State, Tensors], Shapes] | None = None


@dataclass(frozen=True)
class Value:
    """A plain value of a state, and the types it may have."""

    get: Callable[[State], Any]
    set: Callable[[State, Any], None]
    types: tuple[type, ...]


def _policies(state: State) -> dict[str, CTAugment]:
    """The views whose policy is learned."""
    return {name: policy for name, policy in state.views.items() if isinstance(policy, CTAugment)}


def _rates(state: State) -> Tensors:
    policies = _policies(state).items()
    return {f"{view}.{name}": rates for view, policy in policies for name, rates in policy.state_dict().items()}


def _set_rates(state: State, tensors: Tensors) -> None:
    for view, policy in _policies(state).items():
        policy.load_state_dict({name: value.cpu() for name, value in _under(f"{view}.", tensors).items()})


def _optimizer_tensors(state: State, keys: tuple[str, ...]) -> Tensors:
    """What the optimizer stores under these keys for each parameter, as KEY.PARAMETER."""
    stored = {name: state.optimizer.state.get(value, {}) for name, value in state.objective.named_parameters()}
    return {f"{key}.{name}": values[key] for key in keys for name, values in stored.items() if key in values}


def _set_optimizer_tensors(state: State, tensors: Tensors) -> None:
    parameters = dict(state.objective.named_parameters())
    for full_name, value in tensors.items():
        key, _, name = full_name.partition(".")
        parameter = parameters[name]
        # In the memory layout of the parameter, or each step would have to reorder it; steps are counted on the CPU.
        copy = value.cpu() if key == "step" else torch.empty_like(parameter).copy_(value)
        state.optimizer.state[parameter][key] = copy


def _optimizer_shapes(state: State, keys: tuple[str, ...]) -> Shapes:
    shapes = {name: value.shape for name, value in state.objective.named_parameters()}
    return {f"{key}.{name}": torch.Size() if key == "step" else shape for key in keys for name, shape in shapes.items()}


def _small(_: State, tensors: Tensors) -> Shapes:
    """Numbers and vectors of any name."""
    return {name: value.shape for name, value in tensors.items() if value.ndim <= 1}


def _momentum(state: State) -> Tensors:
    return _under("momentum_buffer.", _optimizer_tensors(state, MOMENTUM))


def _set_momentum(state: State, tensors: Tensors) -> None:
    _set_optimizer_tensors(state, {f"momentum_buffer.{name}": value for name, value in tensors.items()})


def _scaler(state: State) -> Tensors:
    values = state.scaler.state_dict()  # empty unless the precision is float16
    names = {"scale": "scale", "growth": "_growth_tracker"}
    return {name: torch.tensor(values[key]) for name, key in names.items() if key in values}


def _set_scaler(state: State, tensors: Tensors) -> None:
    if tensors:
        saved = {"scale": float(tensors["scale"]), "_growth_tracker": int(tensors["growth"])}
        state.scaler.load_state_dict({**state.scaler.state_dict(), **saved})


PARTS = (
    Part(
        "objective.",
        lambda state: state.objective.state_dict(),
        lambda state, tensors: _load(state.objective, tensors),
    ),
    Part("ema.", lambda state: state.ema.state_dict(), lambda state, tensors: _load(state.ema, tensors)),
    Part("start.", lambda state: state.start, lambda state, tensors: state.start.update(tensors)),
    Part("views.", _rates, _set_rates),
    Part("scaler.", _scaler, _set_scaler),
    Part(
        "momentum.",
        _momentum,
        _set_momentum,
        lambda state, _: _under("momentum_buffer.", _optimizer_shapes(state, MOMENTUM)),
    ),
    Part(
        "adam.",
        lambda state: _optimizer_tensors(state, ADAM),
        _set_optimizer_tensors,
        lambda state, _: _optimizer_shapes(state, ADAM),
    ),
    Part(
        "window.sums.",
        lambda state: state.window.sums,
        lambda state, tensors: state.window.sums.update(tensors),
        _small,
    ),
    Part(
        "window.bad.",
        lambda state: state.window.bad,
        lambda state, tensors: state.window.bad.update(tensors),
        _small,
    ),
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


def _under(prefix: str, values: dict[str, T]) -> dict[str, T]:
    """The values whose names have this prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


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
    """The tensors of an older checkpoint under today's names.

    Rates were one matrix for all operations of a view; the labels that FlexMatch has learned were one tensor.
    """
    tensors = {_LEARNED.get(name, name): value for name, value in tensors.items()}
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
    for part in PARTS:
        _check_part(part, _under(part.prefix, snapshot.tensors), state)
    prefixes = tuple(part.prefix for part in PARTS)
    if unknown := {name for name in snapshot.tensors if not name.startswith(prefixes)}:
        raise ValueError(f"it has an unknown tensor {min(unknown)}")


def _check_part(part: Part, saved: Tensors, state: State) -> None:
    expected = part.shapes(state, saved) if part.shapes else {n: value.shape for n, value in part.get(state).items()}
    for name, shape in expected.items():
        found = saved[name].shape if name in saved else None
        if found != shape and not (found is None and part.shapes):
            raise ValueError(f"it has no {part.prefix}{name} of shape {tuple(shape)}; has the network changed?")
    for name in saved.keys() - expected.keys():
        raise ValueError(f"it has an unknown tensor {part.prefix}{name} of shape {tuple(saved[name].shape)}")


def restore(state: State, snapshot: Snapshot) -> None:
    """Put a state back to a snapshot that fits it."""
    for name, value in VALUES.items():
        value.set(state, snapshot.values[name])
    for part in PARTS:
        part.set(state, {name: value.to(state.device) for name, value in _under(part.prefix, snapshot.tensors).items()})


def share_state(state: State) -> None:
    """Copy the state of the first process, which alone has read a checkpoint, to all others."""
    if world_size() > 1:
        restore(state, from_first_process(lambda: take_snapshot(state)))
