"""Pickles of plain data: lists, dicts, bytes, numbers and arrays of bytes, and nothing else.

Loading a pickle can run any code. This reader replaces the few names that plain data needs by harmless classes and
refuses all others, so that nothing in a file is ever run.
"""

import io
import pickle
import pickletools
from typing import Any

import numpy as np

from rankingmatch.core.errors import DataError, require

__all__ = ["PlainArray", "read_pickle"]


class PlainArray:
    """Replaces a NumPy array in a pickle: keeps its state as data, which is checked before it becomes an array."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def pixels(self) -> np.ndarray:
        """Return the content as a contiguous uint8 array; DataError if it is of another type."""
        try:
            _, shape, dtype, fortran, content = self.state
            require(
                isinstance(dtype, _DType) and dtype.code in ("u1", b"u1") and not fortran, "an array is not of bytes"
            )
            return np.frombuffer(content, np.uint8).reshape(shape)
        except (ValueError, TypeError) as error:
            raise DataError(f"an array's shape does not match its content ({error})") from error


class _DType:
    """Replaces numpy.dtype in a pickle."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass


def _encoded(text: str, _: str) -> bytes:
    """Replaces _codecs.encode, with which Python 3 writes bytes into a pickle that Python 2 can read."""
    return text.encode("latin1")


class _DataOnly(pickle.Unpickler):
    """Reads lists, dicts, bytes, numbers and arrays of bytes; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return lambda *_: PlainArray()
        replacements = {("numpy", "ndarray"): PlainArray, ("numpy", "dtype"): _DType, ("_codecs", "encode"): _encoded}
        if (module, name) not in replacements:
            raise DataError(f"a pickle asks for {module}.{name}, which data does not need; refused, nothing was run")
        return replacements[module, name]


def _refuse_large_memos(content: bytes) -> None:
    """Raise ValueError for a memo index larger than the number of operations so far.

    The unpickler allocates memory up to the index, so that ten bytes can ask for 64 GB.
    """
    for count, (operation, index, _) in enumerate(pickletools.genops(content)):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(index or 0) > count:
            raise ValueError(f"it has the memo index {index} after {count} operations")


def read_pickle(content: bytes, name: str) -> dict[bytes, Any]:
    """Load a pickled dictionary of plain data; `name` is for error messages."""
    try:
        _refuse_large_memos(content)
        values = _DataOnly(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(f"{name} is not a pickle of plain data ({error}); delete it and download it again") from error
    require(isinstance(values, dict), f"{name} is not a dictionary")
    return values  # type: ignore[no-any-return]
