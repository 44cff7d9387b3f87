"""Saving and loading: tensors in safetensors, the rest in JSON, atomic on the way out, verified on the way in."""

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as bytes_of_tensors
from torch import Tensor

from rankingmatch.core.atomic import write_atomically, write_json
from rankingmatch.augment import CTAugment
from rankingmatch.core.distributed import count, from_first
from rankingmatch.core.errors import RunError
from rankingmatch.networks import Classifier, make_classifier
from rankingmatch.training.records import Window
from rankingmatch.training.state import State

log = logging.getLogger(__name__)


# --- a model on its own -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelCard:
    """What is needed, besides the weights, to use a model."""

    network: str
    classes: tuple[str, ...]
    channels: int
    height: int
    width: int
    estimator: dict[str, Any] = field(default_factory=dict)  # what the estimator knows besides, as plain values


def save_model(path: Path, model: Classifier, card: ModelCard) -> None:
    """Write a model with its card into one file."""
    # One key only: the order of several would not be the same every time.
    values = asdict(card)
    if not card.estimator:
        del values["estimator"]
    metadata = {"rankingmatch": json.dumps(values)}
    tensors = {name: _own_copy(value) for name, value in model.state_dict().items()}
    write_atomically(path, bytes_of_tensors(tensors, metadata))


def load_model(path: Path, device: torch.device) -> tuple[Classifier, ModelCard]:
    """Read what `save_model` wrote."""
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            values = json.loads((file.metadata() or {})["rankingmatch"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such model") from None
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: not a model of rankingmatch ({error})") from error
    try:
        card = ModelCard(**{**values, "classes": tuple(values["classes"])})
        mean, std = tensors["mean"].flatten(), tensors["std"].flatten()
        model = make_classifier(card.network, len(card.classes), mean, std).to(device)
        model.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(f"{path}: the weights do not fit the network it names ({reason})") from error
    return model.eval(), card


# --- the state of training ----------------------------------------------------------------------------------


def save_checkpoint(directory: Path, state: State, keep: int = 2) -> None:
    """Write the whole state; the JSON file, written last, makes it count. Older ones but `keep` are removed."""
    directory.mkdir(exist_ok=True)
    name = f"step-{state.step:09d}"
    content = bytes_of_tensors(_tensors(state))
    write_atomically(directory / f"{name}.safetensors", content)
    about = {
        "step": state.step,
        "seconds": state.seconds,
        "best_error": state.best_error,
        "window_count": state.window.count,
    }
    write_json(directory / f"{name}.json", {**about, **checksums(about, content)})
    # Those of later steps were found damaged, or training would not be here: they must not push out good ones.
    kept = [path.stem for path in _checkpoints(directory) if path.stem <= name][:keep]
    for old in directory.glob("step-*"):
        if old.stem not in kept:
            old.unlink()


def checksums(about: dict[str, Any], content: bytes) -> dict[str, str]:
    """Of the tensors' file and of the values in the JSON file, which a flipped bit would change unseen."""
    values = json.dumps({name: value for name, value in about.items() if not name.startswith("sha256")}, sort_keys=True)
    digests = {"sha256": content, "sha256_of_values": values.encode()}
    return {name: hashlib.sha256(covered).hexdigest() for name, covered in digests.items()}


def restore_latest(directory: Path, state: State) -> bool:
    """Put the state back to the newest whole checkpoint; a damaged one is reported and the one before it used.

    False if there is no checkpoint at all; RunError if there are some and none can be used.
    """
    paths = _checkpoints(directory)
    for path in paths:
        try:
            saved = _read(path, state)
        except (OSError, ValueError, SafetensorError, RecursionError) as error:
            log.warning("checkpoint %s cannot be used (%s)", path.stem, error)
            continue
        _apply(state, saved)
        return True
    if paths:
        raise RunError(f"no checkpoint in {directory} can be used; start another run with --out")
    return False


def share_state(state: State) -> None:
    """Put the state of every process to that of the first one, which alone has read a checkpoint."""
    if count() > 1:
        _apply(state, from_first(lambda: _snapshot(state)))


def _checkpoints(directory: Path) -> list[Path]:
    """The JSON files of the checkpoints, newest first."""
    return sorted(directory.glob("step-*.json"), reverse=True)


def _tensors(state: State) -> dict[str, Tensor]:
    tensors = {f"objective.{name}": value for name, value in state.objective.state_dict().items()}
    tensors |= {f"ema.{name}": value for name, value in state.ema.state_dict().items()}
    for name, parameter in state.objective.named_parameters():
        velocity = state.optimizer.state.get(parameter, {}).get("momentum_buffer")
        if velocity is not None:
            tensors[f"momentum.{name}"] = velocity
    tensors |= {f"views.{name}.rates": policy.rates for name, policy in _learning(state).items()}
    tensors |= {f"window.sums.{name}": value for name, value in state.window.sums.items()}
    tensors |= {f"window.bad.{name}": value for name, value in state.window.bad.items()}
    return {name: _own_copy(value) for name, value in tensors.items()}


def _learning(state: State) -> dict[str, CTAugment]:
    """The views whose policy learns."""
    return {name: policy for name, policy in state.views.items() if isinstance(policy, CTAugment)}


def _own_copy(value: Tensor) -> Tensor:
    """A tensor as safetensors wants it: on the CPU, contiguous, sharing memory with no other (tied weights do)."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


@dataclass(frozen=True)
class _Saved:
    """A checkpoint that has been read and found to fit the state."""

    tensors: dict[str, Tensor]
    step: int
    seconds: float
    best_error: float | None
    window_count: int


def _read(path: Path, state: State) -> _Saved:
    """A checkpoint, verified as a whole before anything of it is used; ValueError says what is wrong."""
    about = json.loads(path.read_text())
    content = path.with_suffix(".safetensors").read_bytes()
    if not isinstance(about, dict):
        raise ValueError("its JSON is not a checkpoint's")  # noqa: TRY004 - of the file, not of an argument
    expected = checksums(about, content)
    # Checkpoints of earlier versions have no checksum of their values.
    found = {**expected, "sha256": None, **{name: about.pop(name) for name in expected if name in about}}
    if found != expected:
        raise ValueError("its checksum does not match")
    tensors = tensors_from_bytes(content)
    _check_shapes(tensors, state)
    try:
        saved = _Saved(tensors, **about)
    except TypeError as error:
        raise ValueError(f"its JSON is not a checkpoint's: {error}") from error
    counts, numbers = (saved.step, saved.window_count), (saved.seconds, saved.best_error or 0.0)
    if not all(type(count) is int and count >= 0 for count in counts) or {*map(type, numbers)} - {int, float}:
        raise ValueError("its JSON has values that are no numbers")
    return saved


def _check_shapes(tensors: dict[str, Tensor], state: State) -> None:
    """Raise ValueError unless weights, averages and rates are there as they are now, and nothing unknown is.

    Momentum and window may be absent at the first steps.
    """
    always = ("objective.", "ema.", "views.")
    shapes = {name: value.shape for name, value in _tensors(state).items() if name.startswith(always)}
    for name, shape in shapes.items():
        if name not in tensors or tensors[name].shape != shape:
            raise ValueError(f"it has no {name} of shape {tuple(shape)}; has the network changed?")
    momentum = {f"momentum.{name}": value.shape for name, value in state.objective.named_parameters()}
    for name, value in tensors.items():
        in_window = name.startswith("window.") and value.ndim <= 1
        if not in_window and value.shape != {**shapes, **momentum}.get(name):
            raise ValueError(f"it has {name} of shape {tuple(value.shape)}, which is not known here")


def _snapshot(state: State) -> _Saved:
    return _Saved(_tensors(state), state.step, state.seconds, state.best_error, state.window.count)


def _apply(state: State, saved: _Saved) -> None:
    def under(prefix: str) -> dict[str, Tensor]:
        here = ((name, value) for name, value in saved.tensors.items() if name.startswith(prefix))
        return {name.removeprefix(prefix): value.to(state.device) for name, value in here}

    state.objective.load_state_dict(under("objective."))
    state.ema.load_state_dict(under("ema."))
    for name, policy in _learning(state).items():
        policy.rates = saved.tensors[f"views.{name}.rates"]
    velocities = under("momentum.")
    for name, parameter in state.objective.named_parameters():
        if name in velocities:
            # As the parameter lies in memory, or each step would have to put it in order.
            state.optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(velocities[name])
    state.window = Window(saved.window_count, under("window.sums."), under("window.bad."))
    state.step, state.seconds, state.best_error = saved.step, saved.seconds, saved.best_error
