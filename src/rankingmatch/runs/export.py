"""A trained model as an ONNX file that needs neither torch nor this package."""

import importlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch import __version__
from rankingmatch.core.atomic import write_output
from rankingmatch.core.errors import ConfigError, RunError, first_line, setting
from rankingmatch.networks import Classifier
from rankingmatch.networks.onnx import onnx_session, to_onnx
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo, load_model

__all__ = ["Exported", "export_run"]

TOLERANCE = 1e-4
BATCHES = (1, 7, 32)  # batch sizes with which the file is compared


@dataclass(frozen=True)
class Exported:
    """The file that was written, and its difference from PyTorch."""

    file: str
    bytes: int
    input: str
    output: str
    shape: tuple[int, int, int]  # channels, height, width
    classes: tuple[str, ...]
    difference: float  # the largest between outputs of ONNX Runtime and PyTorch
    images: int  # compared

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        scale = "0…255" if self.input == "uint8" else "0…1"
        shape = ", ".join(map(str, self.shape))
        return (
            f"{self.file}: {self.bytes / 1e6:.1f} MB; images (n, {shape}) {self.input} in {scale} → {self.output} "
            f"(n, {len(self.classes)})\n"
            f"largest difference between ONNX Runtime and PyTorch over {self.images} images: {self.difference:.1e}"
        )


class Deployed(nn.Module):
    """Plain images → probabilities or logits, as one graph."""

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
    """Export a trained model to ONNX, after comparing its outputs with PyTorch's.

    Parameters
    ----------
    run
        A run directory, or the safetensors file of a model.
    file
        Where to write; must end in .onnx.
    values
        What the exported model takes: "uint8" in 0…255, or "float" (float32) in 0…1.
    logits
        Whether it returns logits instead of probabilities.
    best
        Whether to use the weights with the lowest validation error, instead of the last ones.

    Raises
    ------
    RunError
        If the model cannot be read or exported, or if ONNX Runtime computes something else; nothing is written then.
    """
    if values not in ("uint8", "float"):
        raise ConfigError(f"{setting('input')} is '{values}'; it must be uint8 or float")
    if file.suffix != ".onnx":
        raise ConfigError(f"{file} must end in .onnx, so that other tools recognize it")
    if file.is_dir() or not file.parent.is_dir():
        raise RunError(f"{file} cannot be written: it is a directory, or there is no directory {file.parent}")
    _require_packages()
    cpu = torch.device("cpu")
    if best and run.is_file():
        raise ConfigError(f"{setting('best')} needs a run directory, and {run} is a single model; remove it")
    model, info = load_model(run, cpu) if run.is_file() else Run(run).load_model(cpu, best=best)
    deployed = Deployed(model, values, logits=logits).eval()
    content = onnx_bytes(deployed, info, values)
    difference, count = verify(content, deployed, info, values)
    try:
        write_output(file, content)
    except OSError as error:
        raise RunError(f"{file} cannot be written ({error.strerror})") from error
    shape = (info.channels, info.height, info.width)
    return Exported(str(file), len(content), values, _output(deployed), shape, info.classes, difference, count)


def onnx_bytes(deployed: Deployed, info: ModelInfo, values: str) -> bytes:
    """The model as the content of an ONNX file, with class names and input format in its metadata."""
    import onnx

    example = _tensor(_test_images(info, 2, seed=0), values)
    try:
        proto = to_onnx(deployed, example, _output(deployed))
        onnx.helper.set_model_props(proto, metadata(deployed, info, values))
        content: bytes = proto.SerializeToString()
    except Exception as error:  # the network may be the user's code, and the exporter raises errors of many kinds
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise RunError(f"network '{info.network}' cannot be exported to ONNX ({reason})") from error
    return content


def metadata(deployed: Deployed, info: ModelInfo, values: str) -> dict[str, str]:
    """The metadata of the file; `classes` is a JSON list in the order of the outputs."""
    return {
        "classes": json.dumps(info.classes, ensure_ascii=False),
        "height": str(info.height),
        "width": str(info.width),
        "channels": str(info.channels),
        "input": "uint8 0…255" if values == "uint8" else "float32 0…1",
        "layout": "NCHW",
        "resize": "crop" if info.crop else "squeeze",
        "preprocessing": json.dumps(info.preprocessing),
        "output": _output(deployed),
        "network": info.network,
        "rankingmatch": __version__,
    }


@torch.no_grad()
def verify(content: bytes, deployed: Deployed, info: ModelInfo, values: str) -> tuple[float, int]:
    """The largest difference from PyTorch and the number of images compared; RunError if it is too large."""
    session = onnx_session(content)
    difference = 0.0
    for count in BATCHES:
        images = _tensor(_test_images(info, count, seed=count), values)
        ours = deployed(images).numpy()
        (theirs,) = session.run(None, {"images": images.numpy()})
        if theirs.shape != ours.shape:
            raise RunError(
                f"ONNX Runtime gives {theirs.shape} for {count} images, PyTorch {ours.shape}; nothing was written"
            )
        if not np.isfinite(ours).all():
            raise RunError(
                "the outputs of the model are not finite: its weights are damaged, or its training diverged; nothing "
                "was written"
            )
        largest = float(abs(theirs - ours).max())  # NaN if theirs has NaN, which no comparison is true for
        difference = max(difference, largest)
        if not largest <= TOLERANCE or (theirs.argmax(1) != ours.argmax(1)).any():
            raise RunError(
                f"ONNX Runtime differs from PyTorch by {largest:.1e} (allowed: {TOLERANCE:.0e}) or in a prediction; "
                "nothing was written"
            )
    return difference, sum(BATCHES)


def _output(deployed: Deployed) -> str:
    return "logits" if deployed.logits else "probabilities"


def _test_images(info: ModelInfo, count: int, seed: int) -> np.ndarray:
    """Noise of varying contrast and brightness, as uint8."""
    rng = np.random.default_rng(seed)
    shape = (count, info.channels, info.height, info.width)
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
            raise ConfigError(f"export needs {name} ({error}); install it: pip install {name}") from error
