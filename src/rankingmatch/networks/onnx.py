"""Networks in ONNX Runtime, which computes them on a CPU several times faster than eager PyTorch."""

import importlib.util
import io
import logging
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.networks.classifier import Output

log = logging.getLogger(__name__)

TOLERANCE = 1e-4  # of the largest value
WORTH_CONVERTING = 25e6  # pixels, such as 1,500 photographs of 128×128
AT_ONCE = 64  # images


def to_onnx(module: nn.Module, example: Tensor, *outputs: str) -> Any:
    """Convert a module to an ONNX model (`onnx.ModelProto`) for batches of any size.

    The module is in evaluation mode and has one input, which is called "images"; the example has at least two rows.
    `outputs` are names for the outputs.
    """
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the exporter's messages are for its developers
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=["images"],
                output_names=outputs or None,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    return program.model_proto


def accelerated(module: nn.Module, count: int = 0) -> nn.Module:
    """The same module, computed in ONNX Runtime where that saves time: on a CPU, for many images, without gradients.

    The module is in evaluation mode and maps uint8 images (n, c, h, w) to a tensor, or to the `Output` of a classifier;
    `count` images are expected, if that is known. The conversion takes seconds, so it is done at the first batch if
    `count` images are worth it, or when that many have been computed. A module that cannot be converted, or that ONNX
    Runtime computes differently, stays in torch.
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
        self._computed += len(images)
        pixels = images.shape[2] * images.shape[3] * max(self._count, self._computed)
        on_cpu = images.device.type == "cpu" and not torch.is_grad_enabled()
        if not self._tried and on_cpu and len(images) > 1 and pixels >= WORTH_CONVERTING:
            self._tried, self._function = True, onnx_function(self.module, images[:2])
        return (self._function or self.module)(images)


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

        found = function(other)
        pairs = zip(found, expected, strict=True) if isinstance(expected, Output) else [(found, expected)]
        # A comparison with NaN is false, so that NaN is refused, too.
        equal = all(bool((ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max()) for ours, theirs in pairs)
    except Exception as error:  # of many kinds
        log.debug("ONNX Runtime is not used: %s", error)
        return None
    if not equal:
        log.debug("ONNX Runtime is not used: its outputs differ from those of PyTorch")
    return function if equal else None


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


def onnx_session(content: bytes) -> Any:
    """An ONNX Runtime session on the CPU, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that wait leave the cores to decoding, augmentation and other programs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
