"""Saving and loading: tensors in safetensors, the rest in JSON, atomic on the way out, verified on the way in."""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as bytes_of_tensors
from torch import Tensor

from rankingmatch.errors import RunError
from rankingmatch.networks import Classifier, make_backbone
from rankingmatch.records import Window
from rankingmatch.state import State

log = logging.getLogger(__name__)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at any instant there is either the old one or the new one, whole."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


# --- a model on its own -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelCard:
    """What is needed, besides the weights, to use a model."""

    network: str
    classes: tuple[str, ...]
    channels: int
    height: int
    width: int


def save_model(path: Path, model: Classifier, card: ModelCard) -> None:
    """Write a model with its card into one file."""
    # One key only: the order of several would not be the same every time.
    metadata = {"rankingmatch": json.dumps(asdict(card))}
    tensors = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
    write_atomically(path, bytes_of_tensors(tensors, metadata))


def load_model(path: Path, device: torch.device) -> tuple[Classifier, ModelCard]:
    """Read what `save_model` wrote."""
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            values = json.loads((file.metadata() or {})["rankingmatch"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such model") from None
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise RunError(f"{path}: not a model of rankingmatch ({error})") from error
    card = ModelCard(**{**values, "classes": tuple(values["classes"])})
    backbone = make_backbone(card.network, card.channels, len(card.classes))
    model = Classifier(backbone, tensors["mean"], tensors["std"]).to(device)
    model.load_state_dict(tensors)
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
        "best_step": state.best_step,
        "window_count": state.window.count,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    write_json(directory / f"{name}.json", about)
    for old in _checkpoints(directory)[keep:]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def restore_latest(directory: Path, state: State) -> bool:
    """Put the state back to the newest whole checkpoint; a damaged one is reported and the one before it used."""
    for path in _checkpoints(directory):
        try:
            about = json.loads(path.read_text())
            content = path.with_suffix(".safetensors").read_bytes()
            if hashlib.sha256(content).hexdigest() != about["sha256"]:
                raise ValueError("its checksum does not match")
            _restore(state, tensors_from_bytes(content), about)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            log.warning("checkpoint %s cannot be used (%s); trying the one before it", path.stem, error)
            continue
        return True
    return False


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
    tensors |= {f"window.sums.{name}": value for name, value in state.window.sums.items()}
    tensors |= {f"window.bad.{name}": value for name, value in state.window.bad.items()}
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _restore(state: State, tensors: dict[str, Tensor], about: Mapping[str, Any]) -> None:
    def under(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

    state.objective.load_state_dict(under("objective."))
    state.ema.load_state_dict(under("ema."))
    velocities = under("momentum.")
    for name, parameter in state.objective.named_parameters():
        if name in velocities:
            state.optimizer.state[parameter]["momentum_buffer"] = velocities[name].to(state.device)
    sums = {name: value.to(state.device) for name, value in under("window.sums.").items()}
    bad = {name: value.to(state.device) for name, value in under("window.bad.").items()}
    state.window = Window(about["window_count"], sums, bad)
    state.step, state.seconds = about["step"], about["seconds"]
    state.best_error, state.best_step = about["best_error"], about["best_step"]
