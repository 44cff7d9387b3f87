"""Networks in ONNX Runtime, which computes them on a CPU several times faster than eager PyTorch."""

import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.networks.classifier import Output

__all__ = ["accelerated", "onnx_session", "to_onnx"]

log = logging.getLogger(__name__)

TOLERANCE = 1e-4  # of the largest value
WORTH_CONVERTING = 25e6  # pixels, such as 1,500 photographs of 128×128
AT_ONCE = 64  # images


def to_onnx(module: nn.Module, example: Tensor, *outputs: str) -> Any:
    """Convert a module to an ONNX model, for batches of any size.

    Parameters
    ----------
    module : torch.nn.Module
        A module in evaluation mode with one input.
    example : Tensor
        An input of at least two rows; their number does not matter.
    *outputs : str
        Names for the outputs; the input is called "images".

    Returns
    -------
    onnx.ModelProto
        The model.
    """
    with _quiet():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=outputs or None,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    assert program is not None
    return program.model_proto


def accelerated(module: nn.Module, count: int = 0) -> nn.Module:
    """The same module, computed in ONNX Runtime where that saves time: on a CPU, for many images, without gradients.

    The conversion takes seconds, so it is done at the first batch if `count` images are worth it, or when that many
    have been computed. A module that cannot be converted, or that ONNX Runtime computes differently, stays in torch.

    Parameters
    ----------
    module : torch.nn.Module
        A module in evaluation mode: uint8 images (n, c, h, w) → a tensor, or the `Output` of a classifier.
    count : int
        The number of images to expect, if it is known.

    Returns
    -------
    torch.nn.Module
        A module with the same outputs, except for rounding. It must not be trained.
    """
    return _Accelerated(module, count)


class _Accelerated(nn.Module):
    """A module and, once it is converted, the function that replaces it."""

    def __init__(self, module: nn.Module, count: int) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self._count, self._computed = count, 0
        self._tried = False
        self._function: Callable[[Tensor], Any] | None = None

    def forward(self, images: Tensor) -> Any:
        """Compute the output of the module."""
        self._computed += len(images)
        if not self._tried and self._is_worthwhile(images):
            self._tried, self._function = True, onnx_function(self.module, images[:2])
        return (self._function or self.module)(images)

    def _is_worthwhile(self, images: Tensor) -> bool:
        pixels = images.shape[2] * images.shape[3] * max(self._count, self._computed)
        on_cpu = images.device.type == "cpu" and not torch.is_grad_enabled()
        return on_cpu and len(images) > 1 and pixels >= WORTH_CONVERTING


def onnx_function(module: nn.Module, example: Tensor) -> Callable[[Tensor], Any] | None:
    """A module as a function in ONNX Runtime; None if there is none that computes the same as torch."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
        return None
    try:
        session = onnx_session(to_onnx(_Tensors(module).eval(), example).SerializeToString())
        other = torch.cat([example, example[:1]])  # a graph may depend on the size of the batch
        expected = module(other)

        def function(images: Tensor) -> Any:
            values = _run(session, images)
            return Output(values[0], values[-1]) if isinstance(expected, Output) else values[0]

        differs = _differs(function(other), expected)
    except Exception as error:  # of many kinds
        log.debug("ONNX Runtime is not used: %s", error)
        return None
    if differs:
        log.debug("ONNX Runtime is not used: its outputs differ from those of PyTorch")
    return None if differs else function


class _Tensors(nn.Module):
    """A module whose outputs are all different tensors, in a plain tuple."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        result: Tensor | Output = self.module(images)
        if not isinstance(result, Output):
            return (result,)
        return (result.logits,) if result.features is result.logits else (result.logits, result.features)


def _run(session: Any, images: Tensor) -> list[Tensor]:
    """The outputs of a session, computed in batches that fit into the caches of the processor."""
    batches = [session.run(None, {"images": batch.contiguous().numpy()}) for batch in images.split(AT_ONCE)]
    return [torch.from_numpy(np.concatenate(values)) for values in zip(*batches, strict=True)]


def _differs(ours: Any, expected: Any) -> bool:
    """Whether the outputs differ by more than rounding."""
    pairs = zip(ours, expected, strict=True) if isinstance(expected, Output) else [(ours, expected)]
    # A comparison with NaN is false, so that NaN is refused, too.
    return not all(bool((a - b).abs().max() <= TOLERANCE * b.abs().max()) for a, b in pairs)


def onnx_session(content: bytes) -> Any:
    """An ONNX Runtime session on the CPU, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that wait leave the cores to decoding, augmentation and other programs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's messages, which are for its developers."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
