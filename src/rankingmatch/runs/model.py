"""A trained model in one file: weights in safetensors, and what is needed to use them as JSON in its header."""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors.torch import save

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, RunError, first_line
from rankingmatch.core.imports import is_import_path, require_trusted
from rankingmatch.core.imports import trust as trust_names
from rankingmatch.core.untrusted import (
    FORMATS,
    BadFileError,
    Between,
    TensorHeader,
    check_format,
    check_value,
    parse_json,
    read_tensor_header,
    read_tensors,
    require_finite,
    typed,
)
from rankingmatch.data.decode import preprocessing
from rankingmatch.networks import Classifier, make_classifier, normalize_head
from rankingmatch.networks.classifier import has_normalized_head
from rankingmatch.training.snapshot import contiguous_copy

__all__ = ["ModelInfo", "load_model", "save_model"]

Writer = Callable[[Path, bytes], None]
log = logging.getLogger(__name__)

LONGEST_NAME = 200  # characters of a network's name


@dataclass(frozen=True)
class ModelInfo:
    """What is needed, besides the weights, to use a model."""

    network: str
    classes: tuple[str, ...]
    channels: Annotated[int, Between(1, 4096)]
    height: Annotated[int, Between(1, 4096)]
    width: Annotated[int, Between(1, 4096)]
    estimator: dict[str, Any] = field(default_factory=dict)  # parameters and labels of a scikit-learn estimator
    crop: bool = False  # whether images were cropped to that shape, instead of squeezed

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images it takes."""
        return self.height, self.width, self.channels

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How image files become its inputs."""
        return preprocessing(self.shape, crop=self.crop)


def save_model(path: Path, model: Classifier, info: ModelInfo, write: Writer = write_atomically) -> None:
    """Write a model and its info into one file."""
    values: dict[str, Any] = {"format": FORMATS["model"], **asdict(info), "preprocessing": info.preprocessing}
    if not info.estimator:
        del values["estimator"]
    # A single key: safetensors does not keep the order of several.
    metadata = {"rankingmatch": json.dumps(values)}
    tensors = {name: contiguous_copy(value) for name, value in model.state_dict().items()}
    write(path, save(tensors, metadata))


def load_model(path: Path, device: torch.device, *, trust: bool = False) -> tuple[Classifier, ModelInfo]:
    """Read what `save_model` wrote; raises RunError if the file is missing, damaged or of another kind.

    Parameters
    ----------
    path
        The file.
    device
        Where to put the model.
    trust
        Whether to import a network that the file names by its import path, which runs its code.
    """
    try:
        header = read_tensor_header(path)
        info = _read_info(header, path)
        if trust:
            trust_names([info.network])
        require_trusted("network", info.network, path)
        _check_shapes(header, info)
        tensors = read_tensors(path, str(device))
        require_finite(tensors)
        if not bool((tensors["std"] > 0).all()):
            raise BadFileError("the standard deviation of its images is not positive")
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such model") from None
    except (OSError, BadFileError) as error:
        raise RunError(f"{path}: not a model of rankingmatch ({first_line(error)})") from error
    try:
        model = _build(info, header, tensors["mean"].flatten(), tensors["std"].flatten()).to(device)
        model.load_state_dict(tensors)
    except (AttributeError, KeyError, TypeError, RuntimeError) as error:
        raise RunError(f"{path}: the weights do not fit the network it names ({first_line(error)})") from error
    return model.eval(), info


def _read_info(header: TensorHeader, path: Path) -> ModelInfo:
    """What a file says of its model, checked."""
    if "rankingmatch" not in header.metadata:
        raise BadFileError("it has no entry 'rankingmatch' in its header")
    values = parse_json(header.metadata["rankingmatch"])
    check_value("the entry 'rankingmatch'", values, dict)
    check_format("model", values, path)
    info = typed(ModelInfo, {name: value for name, value in values.items() if name not in ("format", "preprocessing")})
    if values.get("preprocessing", info.preprocessing) != info.preprocessing:
        log.warning(
            "%s: this version of rankingmatch reads image files in another way than the one that wrote it", path
        )
    if len(info.network) > LONGEST_NAME:
        raise BadFileError(f"the name of its network has {len(info.network):,} characters")
    if len(info.classes) < 1 or not all(info.classes) or len(set(info.classes)) < len(info.classes):
        raise BadFileError("its classes must be different names")
    return info


def _check_shapes(header: TensorHeader, info: ModelInfo) -> None:
    """Raise BadFileError unless the tensors have the shapes of the network's, before memory is needed for it.

    The network is first built without memory for its weights, unless it is the user's own code, which may not work so.
    """
    for name in ("mean", "std"):
        if header.shapes.get(name) != (1, info.channels, 1, 1):
            raise BadFileError(f"{name} is missing, or does not fit {info.channels} channels")
    if is_import_path(info.network):
        return
    try:
        with torch.device("meta"):
            model = _build(info, header, torch.ones(info.channels), torch.ones(info.channels))
    except (ConfigError, NotImplementedError, RuntimeError):  # a network that cannot be built at all, or not like this
        return
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    wrong = sorted(name for name in {*expected, *header.shapes} if expected.get(name) != header.shapes.get(name))
    if wrong:
        raise BadFileError(f"the weights do not fit the network it names: {wrong[0][:100]}")


def _build(info: ModelInfo, header: TensorHeader, mean: torch.Tensor, std: torch.Tensor) -> Classifier:
    """The network of a model, with the kind of head that its tensors are of."""
    model = make_classifier(info.network, len(info.classes), mean, std)
    if has_normalized_head(header.shapes):
        normalize_head(model.backbone)
    return model
