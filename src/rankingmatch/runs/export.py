"""A trained model as an ONNX file that needs neither torch nor this package."""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path

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

TOLERANCE = 1e-4
BATCHES = (1, 7, 32)  # batch sizes with which the file is compared


@dataclass(frozen=True)
class Exported:
    """The file that was written, and its difference from PyTorch.

    Attributes
    ----------
    file, bytes
        The path, and its size.
    input, output
        What the exported model takes, "uint8" or "float", and returns, "probabilities" or "logits".
    shape
        Channels, height and width of an image.
    classes
        The names of the classes, in the order of the outputs.
    difference, images
        The largest difference between outputs of ONNX Runtime and PyTorch, and the number of images compared.
    """

    file: str
    bytes: int
    input: str
    output: str
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    difference: float
    images: int

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

    def __init__(self, model: Classifier, input: str, *, logits: bool) -> None:
        super().__init__()
        self.model = model
        self.input = input
        self.output = "logits" if logits else "probabilities"

    def forward(self, images: Tensor) -> Tensor:
        """(n, c, h, w) uint8 images in 0…255, or floats in 0…1 → (n, classes)."""
        logits: Tensor = self.model(images if self.input == "uint8" else images * 255.0).logits
        return logits if self.output == "logits" else logits.softmax(1)

    def noise(self, info: ModelInfo, count: int, seed: int) -> Tensor:
        """Input images of varying contrast and brightness."""
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=(count, info.channels, info.height, info.width))
        noise = noise * rng.uniform(0, 120, (count, 1, 1, 1)) + rng.uniform(0, 255, (count, 1, 1, 1))
        images = torch.from_numpy(noise.clip(0, 255).astype(np.uint8))
        return images if self.input == "uint8" else images.float() / 255


def export(
    run: Run | str | Path,
    file: str | Path,
    *,
    input: str = "uint8",
    logits: bool = False,
    best: bool = False,
    trust: bool = False,
) -> Exported:
    """Export a trained model to ONNX, after comparing its outputs with PyTorch's.

    Parameters
    ----------
    run
        A run, its directory, or the safetensors file of a model.
    file
        Where to write; must end in .onnx.
    input
        What the exported model takes: "uint8" in 0…255, or "float" (float32) in 0…1.
    logits
        Whether it returns logits instead of probabilities.
    best
        Whether to use the weights with the lowest validation error, instead of the last ones.
    trust
        Whether a network that the run or the file names by its import path may be imported.

    Returns
    -------
    Exported
        What was written, and how much its outputs differ from PyTorch's.

    Raises
    ------
    RankingMatchError
        If the model cannot be read or exported, or if ONNX Runtime computes something else; nothing is written then.

    Examples
    --------
    >>> import rankingmatch as rm
    >>> rm.export("runs/photos", "photos.onnx").difference  # doctest: +SKIP
    """
    file = Path(file)
    if input not in ("uint8", "float"):
        raise ConfigError(f"{setting('input')} is '{input}'; it must be uint8 or float")
    if file.suffix != ".onnx":
        raise ConfigError(f"{file} must end in .onnx, so that other tools recognize it")
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"export needs {name} ({error}); install it: pip install {name}") from error
    import onnx

    run = Run.at(run, trust=trust)
    run.require_output(file, option=None)
    if best and run.path.is_file():
        raise ConfigError(f"{setting('best')} needs a run directory, and {run.path} is a single model; remove it")
    if run.path.is_file():
        model, info = load_model(run.path, torch.device("cpu"), trust=trust)
    else:
        model, info = run.load_model("cpu", best=best)
    deployed = Deployed(model, input, logits=logits).eval()
    try:
        proto = to_onnx(deployed, deployed.noise(info, 2, seed=0), deployed.output)
        onnx.helper.set_model_props(proto, metadata(deployed, info))
        content: bytes = proto.SerializeToString()
    except Exception as error:  # the network may be the user's code, and the exporter raises errors of many kinds
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise RunError(f"network '{info.network}' cannot be exported to ONNX ({reason})") from error
    session, largest = onnx_session(content), 0.0
    for count in BATCHES:
        images = deployed.noise(info, count, seed=count)
        with torch.no_grad():
            ours = deployed(images).numpy()
        (theirs,) = session.run(None, {"images": images.numpy()})
        if not np.isfinite(ours).all():
            raise RunError(
                "the outputs of the model are not finite: its weights are damaged, or its training diverged; nothing "
                "was written"
            )
        same = theirs.shape == ours.shape and bool((theirs.argmax(1) == ours.argmax(1)).all())
        difference = float(abs(theirs - ours).max()) if same else np.nan
        if not difference <= TOLERANCE:  # nor if it is NaN
            raise RunError(
                f"ONNX Runtime differs from PyTorch by {difference:.1e} (allowed: {TOLERANCE:.0e}), in a prediction, "
                "or in the shape of its outputs; nothing was written"
            )
        largest = max(largest, difference)
    try:
        write_output(file, content)
    except OSError as error:
        raise RunError(f"{file} cannot be written ({error.strerror})") from error
    shape = (info.channels, info.height, info.width)
    return Exported(str(file), len(content), input, deployed.output, shape, info.classes, largest, sum(BATCHES))


def metadata(deployed: Deployed, info: ModelInfo) -> dict[str, str]:
    """The metadata of the file; `classes` is a JSON list in the order of the outputs."""
    return {
        "classes": json.dumps(info.classes, ensure_ascii=False),
        "height": str(info.height),
        "width": str(info.width),
        "channels": str(info.channels),
        "input": "uint8 0…255" if deployed.input == "uint8" else "float32 0…1",
        "layout": "NCHW",
        "resize": "crop" if info.crop else "squeeze",
        "preprocessing": json.dumps(info.preprocessing),
        "output": deployed.output,
        "network": info.network,
        "rankingmatch": __version__,
    }
