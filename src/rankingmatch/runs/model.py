"""A trained model in one file: weights in safetensors, and what is needed to use them as JSON in its header."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import RunError, first_line
from rankingmatch.core.formats import FORMATS, check_format
from rankingmatch.networks import Classifier, make_classifier
from rankingmatch.training.snapshot import contiguous_copy

__all__ = ["ModelInfo", "load_model", "save_model"]


@dataclass(frozen=True)
class ModelInfo:
    """What is needed, besides the weights, to use a model."""

    network: str
    classes: tuple[str, ...]
    channels: int
    height: int
    width: int
    estimator: dict[str, Any] = field(default_factory=dict)  # parameters and labels of a scikit-learn estimator
    crop: bool = False  # whether images were cropped to that shape, instead of squeezed

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images it takes."""
        return self.height, self.width, self.channels


def save_model(path: Path, model: Classifier, info: ModelInfo) -> None:
    """Write a model and its info into one file."""
    values: dict[str, Any] = {"format": FORMATS["model"], **asdict(info)}
    if not info.estimator:
        del values["estimator"]
    # A single key: safetensors does not keep the order of several.
    metadata = {"rankingmatch": json.dumps(values)}
    tensors = {name: contiguous_copy(value) for name, value in model.state_dict().items()}
    write_atomically(path, save(tensors, metadata))


def load_model(path: Path, device: torch.device) -> tuple[Classifier, ModelInfo]:
    """Read what `save_model` wrote; raises RunError if the file is missing, damaged or of another kind."""
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            values = json.loads((file.metadata() or {})["rankingmatch"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such model") from None
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: not a model of rankingmatch ({error})") from error
    try:
        check_format("model", values, path)
        known = {name: value for name, value in values.items() if name != "format"}
        info = ModelInfo(**{**known, "classes": tuple(values["classes"])})
        mean, std = tensors["mean"].flatten(), tensors["std"].flatten()
        model = make_classifier(info.network, len(info.classes), mean, std).to(device)
        model.load_state_dict(tensors)
    except (AttributeError, KeyError, TypeError, RuntimeError) as error:
        raise RunError(f"{path}: the weights do not fit the network it names ({first_line(error)})") from error
    return model.eval(), info
