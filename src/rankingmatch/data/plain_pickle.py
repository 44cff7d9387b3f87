"""Pickles of plain data: lists, dicts, bytes, numbers and arrays of bytes, and nothing else.

A pickle can run any code when it is loaded. This reader gives it stand-ins for the few names that data needs and
refuses all others, so that nothing in a file is ever run.
"""

import io
import pickle
import pickletools
from typing import Any

import numpy as np

from rankingmatch.core.errors import DataError, require


class PlainArray:
    """Stands for a NumPy array in a pickle: takes its state as data, and is checked before it becomes an array."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def pixels(self) -> np.ndarray:
        """A contiguous array of bytes, the only kind that is read."""
        try:
            _, shape, kind, fortran, content = self.state
            require(isinstance(kind, _Kind) and kind.code in ("u1", b"u1") and not fortran, "an array is not of bytes")
            return np.frombuffer(content, np.uint8).reshape(shape)
        except (ValueError, TypeError) as error:
            raise DataError(f"an array's shape and its content do not fit ({error})") from error


class _Kind:
    """Stands for numpy.dtype in a pickle."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass


def _encoded(text: str, _: str) -> bytes:
    """How Python 3 writes bytes into a pickle that Python 2 can read."""
    return text.encode("latin1")


class _DataOnly(pickle.Unpickler):
    """Reads lists, dicts, bytes, numbers and arrays of bytes; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return lambda *_: PlainArray()
        stand_ins = {("numpy", "ndarray"): PlainArray, ("numpy", "dtype"): _Kind, ("_codecs", "encode"): _encoded}
        if (module, name) not in stand_ins:
            raise DataError(f"a pickle asks for {module}.{name}, which data does not need; refused, nothing was run")
        return stand_ins[module, name]


def _refuse_large_memos(content: bytes) -> None:
    """Raise ValueError for a value said to be remembered far beyond those before it: room would be made for all.

    Ten bytes can ask for 64 GB that way.
    """
    for count, (operation, place, _) in enumerate(pickletools.genops(content)):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(place or 0) > count:
            raise ValueError(f"it remembers value {place} of {count}")


def read_pickle(content: bytes, name: str) -> dict[bytes, Any]:
    """A pickled dictionary of plain data."""
    try:
        _refuse_large_memos(content)
        values = _DataOnly(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    except Exception as error:  # a broken pickle may raise anything
        raise DataError(f"{name} is not a pickle of plain data ({error}); delete it and download it again") from error
    require(isinstance(values, dict), f"{name} holds no dictionary")
    return values  # type: ignore[no-any-return]
