"""A trained model as an ONNX file that needs neither torch nor this package."""

import importlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch import __version__
from rankingmatch.core.atomic import write_atomically
from rankingmatch.runs.checkpoint import ModelCard, load_model
from rankingmatch.core.errors import ConfigError, RunError
from rankingmatch.networks import Classifier
from rankingmatch.runs.directory import Run

TOLERANCE = 1e-4
BATCHES = (1, 7, 32)  # how many images at a time the file is tried on


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from PyTorch."""

    file: str
    bytes: int
    input: str
    output: str
    shape: tuple[int, int, int]  # channels, height, width
    classes: tuple[str, ...]
    difference: float  # the largest between outputs of ONNX Runtime and PyTorch
    images: int  # over so many images

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def words(self) -> str:
        """For people."""
        scale = "0…255" if self.input == "uint8" else "0…1"
        shape = ", ".join(map(str, self.shape))
        return (
            f"{self.file}: {self.bytes / 1e6:.1f} MB; images (n, {shape}) {self.input} in {scale} → {self.output} "
            f"(n, {len(self.classes)})\n"
            f"largest difference between ONNX Runtime and PyTorch over {self.images} images: {self.difference:.1e}"
        )


class Deployed(nn.Module):
    """Plain images → probabilities or logits: the whole way as one graph."""

    def __init__(self, model: Classifier, values: str, *, logits: bool) -> None:
        super().__init__()
        self.model = model
        self.scale = 255.0 if values == "float" else 1.0
        self.logits = logits

    def forward(self, images: Tensor) -> Tensor:
        """(n, c, h, w) uint8 images in 0…255, or floats in 0…1 → (n, classes)."""
        logits: Tensor = self.model(images if self.scale == 1 else images * self.scale).logits
        return logits if self.logits else logits.softmax(1)


def export_run(run: Path, file: Path, *, values: str = "uint8", logits: bool = False, best: bool = False) -> Exported:
    """Write the model of a run, or of a model's own file, as ONNX; RunError if it does not compute the same.

    `values` is "uint8" (0…255) or "float" (float32 in 0…1). Nothing is written before the file has been compared.
    """
    if values not in ("uint8", "float"):
        raise ConfigError(f"--input is '{values}'; it must be uint8 or float")
    if file.suffix != ".onnx":
        raise ConfigError(f"{file} must end in .onnx, so that other tools know it")
    if file.is_dir() or not file.parent.is_dir():
        raise RunError(f"{file} cannot be written: there is no directory {file.parent}, or it is one itself")
    _require_packages()
    cpu = torch.device("cpu")
    if best and run.is_file():
        raise ConfigError(f"--best chooses among the models of a run, and {run} is one model; leave it out")
    model, card = load_model(run, cpu) if run.is_file() else Run(run).load_model(cpu, best=best)
    deployed = Deployed(model, values, logits=logits).eval()
    content = onnx_bytes(deployed, card, values)
    difference, count = verify(content, deployed, card, values)
    try:
        write_atomically(file, content)
    except OSError as error:
        raise RunError(f"{file} cannot be written ({error.strerror})") from error
    shape = (card.channels, card.height, card.width)
    return Exported(str(file), len(content), values, _output(deployed), shape, card.classes, difference, count)


def onnx_bytes(deployed: Deployed, card: ModelCard, values: str) -> bytes:
    """The model as the content of an ONNX file, with what a user of it must know in its metadata."""
    import onnx

    example = _tensor(_trial_images(card, 2, seed=0), values)
    try:
        with _quiet():
            program = torch.onnx.export(
                deployed,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=["images"],
                output_names=[_output(deployed)],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
        assert program is not None
        proto = program.model_proto
        onnx.helper.set_model_props(proto, metadata(deployed, card, values))
        content: bytes = proto.SerializeToString()
    except Exception as error:  # the network may be the user's code, and the exporter raises what it likes
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        raise RunError(f"network '{card.network}' cannot be exported to ONNX ({reason})") from error
    return content


def metadata(deployed: Deployed, card: ModelCard, values: str) -> dict[str, str]:
    """What the file says of itself; `classes` is a JSON list in the order of the outputs."""
    return {
        "classes": json.dumps(card.classes, ensure_ascii=False),
        "height": str(card.height),
        "width": str(card.width),
        "channels": str(card.channels),
        "input": "uint8 0…255" if values == "uint8" else "float32 0…1",
        "layout": "NCHW",
        "output": _output(deployed),
        "network": card.network,
        "rankingmatch": __version__,
    }


@torch.no_grad()
def verify(content: bytes, deployed: Deployed, card: ModelCard, values: str) -> tuple[float, int]:
    """The largest difference between ONNX Runtime and PyTorch, and over how many images; RunError if it matters."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    difference = 0.0
    for count in BATCHES:
        images = _tensor(_trial_images(card, count, seed=count), values)
        ours = deployed(images).numpy()
        (theirs,) = session.run(None, {"images": images.numpy()})
        if theirs.shape != ours.shape:
            raise RunError(f"ONNX Runtime gives {theirs.shape} for {count} images, PyTorch {ours.shape}; not written")
        difference = max(difference, float(abs(theirs - ours).max()))
        # A comparison with NaN is false: what is not surely near is refused.
        if not difference <= TOLERANCE or (theirs.argmax(1) != ours.argmax(1)).any():
            raise RunError(
                f"ONNX Runtime differs from PyTorch by {difference:.1e} (allowed: {TOLERANCE:.0e}) or in a prediction; "
                "the file was not written"
            )
    return difference, sum(BATCHES)


def _output(deployed: Deployed) -> str:
    return "logits" if deployed.logits else "probabilities"


def _trial_images(card: ModelCard, count: int, seed: int) -> np.ndarray:
    """Noise of any contrast around any brightness, as uint8: from black and white to all shades."""
    rng = np.random.default_rng(seed)
    shape = (count, card.channels, card.height, card.width)
    noise = rng.normal(size=shape) * rng.uniform(0, 120, (count, 1, 1, 1))
    return (noise + rng.uniform(0, 255, (count, 1, 1, 1))).clip(0, 255).astype(np.uint8)


def _tensor(images: np.ndarray, values: str) -> Tensor:
    tensor = torch.from_numpy(images)
    return tensor if values == "uint8" else tensor.float() / 255


def _require_packages() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"export needs {name} ({error}): pip install 'rankingmatch[export]'") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's advice to its developers is not for users."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
