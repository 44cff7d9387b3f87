"""Safetensors files that anyone may have written: the header is checked before any tensor is read."""

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load
from torch import Tensor

from rankingmatch.core.names import text_name
from rankingmatch.core.untrusted import BadFileError, parse_json, require_regular

__all__ = ["TensorHeader", "read_tensor_header", "read_tensors", "require_finite"]

MOST_HEADER = 2**23  # bytes
MOST_FILE = 2**40  # bytes
MOST_TENSORS = 100_000
SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}


@dataclass(frozen=True)
class TensorHeader:
    """What a safetensors file says of itself: the shape of each tensor, and texts by name."""

    shapes: dict[str, tuple[int, ...]]
    metadata: dict[str, str]


def read_tensor_header(path: Path) -> TensorHeader:
    """The header of a safetensors file; raises BadFileError if it is damaged, or not a regular file."""
    require_regular(path, MOST_FILE, least=8)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(MOST_HEADER, size - 8):
            raise BadFileError("its header is damaged or too long")
        values = parse_json(file.read(length))
    if not isinstance(values, dict):
        raise BadFileError("its header is not a JSON object")
    metadata = values.pop("__metadata__", {})
    texts = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    if not texts or len(values) > MOST_TENSORS:
        raise BadFileError("its header is damaged")
    shapes = {name: _shape(about) for name, about in values.items()}
    # Stored once each: a header could otherwise have many names for the same bytes.
    if sum(math.prod(shape) * SIZES.get(values[name]["dtype"], 1) for name, shape in shapes.items()) > size:
        raise BadFileError("its header has more tensors than the file")
    return TensorHeader(shapes, metadata)


def _shape(about: Any) -> tuple[int, ...]:
    shape = about.get("shape") if isinstance(about, dict) else None
    if not isinstance(shape, list) or len(shape) > 16 or not isinstance(about.get("dtype"), str):
        raise BadFileError("its header is damaged")
    if not all(type(length) is int and 0 <= length < 2**40 for length in shape):
        raise BadFileError("its header is damaged")
    return tuple(shape)


def read_tensors(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file whose header was read; raises BadFileError if it is damaged."""
    try:
        if not _is_utf8(path):  # safetensors opens no other paths
            return {name: tensor.to(device) for name, tensor in load(path.read_bytes()).items()}
        with safe_open(path, "pt", device=device) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise BadFileError(str(error)) from error


def _is_utf8(path: Path) -> bool:
    return text_name(str(path)) == str(path)


def require_finite(tensors: dict[str, Tensor]) -> None:
    """Raise BadFileError if a tensor has NaN or infinity: a model with such weights predicts nonsense."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise BadFileError(f"its tensor {name[:100]} has values that are NaN or infinite")
