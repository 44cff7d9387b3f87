"""What a checkpoint holds, listed once: named tensors and a few plain values, read from a state and put back."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rankingmatch.augment import CTAugment
from rankingmatch.core.distributed import from_first_process, world_size
from rankingmatch.training.records import Window
from rankingmatch.training.state import SHARES, State, Verdict

Tensors = dict[str, Tensor]

# What an optimizer stores for each parameter, after its first step: SGD its momentum, AdamW the others.
STORED = {
    "momentum.": "momentum_buffer",
    "adam.exp_avg.": "exp_avg",
    "adam.exp_avg_sq.": "exp_avg_sq",
    "adam.step.": "step",
}
SCALER = {"scale": "scale", "growth": "_growth_tracker"}
# Values and their types.
VALUES: dict[str, tuple[type, ...]] = {
    "step": (int,),
    "seconds": (int, float),
    "best_error": (int, float, type(None)),
    "window_count": (int,),
    "verdict": (list, type(None)),
}


@dataclass(frozen=True)
class Snapshot:
    """The tensors and values of a state at one step."""

    tensors: Tensors
    values: dict[str, Any]


def take_snapshot(state: State) -> Snapshot:
    """A copy of everything that a checkpoint holds, on the CPU."""
    tensors = {
        prefix + name: contiguous_copy(value) for prefix, part in _parts(state).items() for name, value in part.items()
    }
    values = {name: getattr(state, name) for name in ("step", "seconds", "best_error")}
    values["verdict"] = None if state.verdict is None else list(state.verdict)
    return Snapshot(tensors, {**values, "window_count": state.window.count})


def contiguous_copy(value: Tensor) -> Tensor:
    """A tensor as safetensors needs it: on the CPU, contiguous, sharing memory with no other (tied weights do)."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def _parts(state: State) -> dict[str, Tensors]:
    """The tensors of a state by the prefix of their names."""
    scaler = state.scaler.state_dict()  # empty unless the precision is float16
    stored = {name: state.optimizer.state.get(value, {}) for name, value in state.objective.named_parameters()}
    return {
        "objective.": state.objective.state_dict(),
        "ema.": state.ema.state_dict(),
        "start.": state.start,
        "views.": {
            f"{view}.{name}": rates
            for view, policy in _learned_policies(state).items()
            for name, rates in policy.state_dict().items()
        },
        "scaler.": {name: torch.tensor(scaler[key]) for name, key in SCALER.items() if key in scaler},
        **{
            prefix: {name: values[key] for name, values in stored.items() if key in values}
            for prefix, key in STORED.items()
        },
        "window.sums.": state.window.sums,
        "window.bad.": state.window.bad,
    }


def _learned_policies(state: State) -> dict[str, CTAugment]:
    return {name: policy for name, policy in state.views.items() if isinstance(policy, CTAugment)}


def _under(prefix: str, values: Tensors) -> Tensors:
    """The values whose names have this prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def check_snapshot(snapshot: Snapshot, state: State) -> None:
    """Raise ValueError unless a snapshot fits a state, before any of it is applied."""
    for name, types in VALUES.items():
        value = snapshot.values.get(name, None if name == "verdict" else "missing")  # earlier versions had no verdict
        if type(value) not in types or (type(value) is int and value < 0):
            raise ValueError(f"its {name} is {value!r}")
    verdict = snapshot.values.get("verdict")
    if verdict is not None and ([type(part) for part in verdict] != [float] * 4 + [int] or verdict[0] not in SHARES):
        raise ValueError(f"its verdict is {verdict!r:.60}")
    if unknown := snapshot.values.keys() - VALUES.keys():
        raise ValueError(f"it has unknown values: {', '.join(sorted(unknown))}")
    parameters = {name: value.shape for name, value in state.objective.named_parameters()}
    parts = _parts(state)
    for prefix, part in parts.items():
        saved = {name: value.shape for name, value in _under(prefix, snapshot.tensors).items()}
        expected = {name: value.shape for name, value in part.items()}
        if prefix.startswith("window."):  # numbers and vectors of any name
            expected = {name: shape for name, shape in saved.items() if len(shape) <= 1}
        elif prefix in STORED:  # of any parameters
            expected = {name: shape for name, shape in parameters.items() if name in saved}
            expected = dict.fromkeys(expected, torch.Size()) if STORED[prefix] == "step" else expected
        for name, shape in expected.items():
            if saved.get(name) != shape:
                raise ValueError(f"it has no {prefix}{name} of shape {tuple(shape)}; has the network changed?")
        for name in saved.keys() - expected.keys():
            raise ValueError(f"it has an unknown tensor {prefix}{name} of shape {tuple(saved[name])}")
    if others := {name for name in snapshot.tensors if not name.startswith(tuple(parts))}:
        raise ValueError(f"it has an unknown tensor {min(others)}")


def restore(state: State, snapshot: Snapshot) -> None:
    """Put a state back to a snapshot that fits it."""
    values = snapshot.values
    state.step, state.seconds, state.best_error = values["step"], values["seconds"], values["best_error"]
    state.verdict = Verdict(*values["verdict"]) if values.get("verdict") else None
    on_device = {name: value.to(state.device) for name, value in snapshot.tensors.items()}
    parts = {prefix: _under(prefix, on_device) for prefix in _parts(state)}
    state.objective.load_state_dict(parts["objective."])
    state.ema.load_state_dict(parts["ema."])
    state.start.update(parts["start."])
    for view, policy in _learned_policies(state).items():
        policy.load_state_dict({name: value.cpu() for name, value in _under(f"{view}.", parts["views."]).items()})
    if scaler := parts["scaler."]:
        saved = {key: scaler[name].item() for name, key in SCALER.items()}
        state.scaler.load_state_dict({**state.scaler.state_dict(), **saved})
    parameters = dict(state.objective.named_parameters())
    for prefix, key in STORED.items():
        for name, value in parts[prefix].items():
            parameter = parameters[name]
            # In the memory layout of the parameter, or each step would reorder it; steps are counted on the CPU.
            copy = value.cpu() if key == "step" else torch.empty_like(parameter).copy_(value)
            state.optimizer.state[parameter][key] = copy
    state.window = Window(values["window_count"], parts["window.sums."], parts["window.bad."])


def share_state(state: State) -> None:
    """Copy the state of the first process, which alone has read a checkpoint, to all others."""
    if world_size() > 1:
        restore(state, from_first_process(lambda: take_snapshot(state)))
