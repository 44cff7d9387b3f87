"""Networks in ONNX Runtime, which computes frozen networks on a CPU several times faster than eager PyTorch."""

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["onnx_function", "onnx_session", "to_onnx"]

log = logging.getLogger(__name__)

TOLERANCE = 1e-3  # of the largest value


def to_onnx(module: nn.Module, example: Tensor, output: str) -> Any:
    """Convert a module to an ONNX model, for batches of any size.

    Parameters
    ----------
    module : torch.nn.Module
        A module in evaluation mode with one input and one output.
    example : Tensor
        An input; the size of its first dimension does not matter.
    output : str
        The name of the output; the input is called "images".

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
            output_names=[output],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    assert program is not None
    return program.model_proto


def onnx_function(module: nn.Module, example: Tensor) -> Callable[[Tensor], np.ndarray] | None:
    """A frozen module as a function in ONNX Runtime, with as many threads as torch has.

    Parameters
    ----------
    module : torch.nn.Module
        A module in evaluation mode, on the CPU, with one input and one output.
    example : Tensor
        An input of at least two rows.

    Returns
    -------
    callable or None
        Tensor → ndarray; None if ONNX Runtime is not installed, or if it cannot compute the same as torch.
    """
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
        return None
    try:
        session = onnx_session(to_onnx(module, example, "maps").SerializeToString())
        with torch.inference_mode():
            expected = module(example).numpy()
        difference = np.abs(session.run(None, {"images": example.numpy()})[0] - expected).max()
    except Exception as error:  # of many kinds: torch computes it then
        log.debug("ONNX Runtime is not used: %s", error)
        return None
    # A comparison with NaN is false, so that NaN is refused, too.
    if not difference <= TOLERANCE * np.abs(expected).max():
        log.debug("ONNX Runtime is not used: it differs from PyTorch by %g", difference)
        return None
    return lambda images: np.asarray(session.run(None, {"images": images.contiguous().numpy()})[0])


def onnx_session(content: bytes) -> Any:
    """An ONNX Runtime session on the CPU, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's messages, which are for its developers."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
