"""Banks: the outputs of the frozen part of a network for precomputed views of every image, in memory-mapped files."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs
import torch
from torch import Tensor

from rankingmatch.core.atomic import opened_atomically
from rankingmatch.core.errors import DataError, first_line, writing_remedy
from rankingmatch.data.dataset import Progress, no_progress

log = logging.getLogger(__name__)

KEPT = 12  # banks in the cache, with those of evaluated images; the least recently used are deleted


@dataclass(frozen=True)
class Bank:
    """Maps (n, channels, height, width) of several views of every training image, and of the evaluated images."""

    views: dict[str, list[np.ndarray]]  # for each name of a view, an array for each of the precomputed views
    validation: np.ndarray | None = None  # without augmentation
    test: np.ndarray | None = None

    def draw(self, name: str, count: int, generator: torch.Generator) -> Tensor:
        """Which of its precomputed views each of `count` images gets: (count,)."""
        return torch.randint(len(self.views[name]), (count,), generator=generator)

    def take(self, name: str, rows: np.ndarray, draw: Tensor) -> Tensor:
        """The maps of these training images under the views that were drawn for them."""
        chosen = zip(draw.tolist(), rows.tolist(), strict=True)
        return torch.from_numpy(np.stack([self.views[name][view][row] for view, row in chosen]))


@dataclass(frozen=True)
class BankFile:
    """One array of a bank: its name, and a function that computes it in batches along its first dimension."""

    name: str
    count: int
    batches: Callable[[], Iterator[np.ndarray]]


def bank_directory(key: str) -> Path:
    """The directory of the bank with this key, in the user's cache."""
    return platformdirs.user_cache_path("rankingmatch") / "banks" / key


def bank_key(*values: np.ndarray | str) -> str:
    """The key of a bank: a checksum of the arrays and texts that it depends on."""
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype} {value.shape}".encode())
            rows = np.atleast_1d(value)
            for start in range(0, len(rows), 1024):
                digest.update(np.ascontiguousarray(rows[start : start + 1024]).tobytes())
        else:
            digest.update(value.encode())
    return digest.hexdigest()[:32]


def read_bank(directory: Path, files: list[BankFile], progress: Progress = no_progress) -> dict[str, np.ndarray]:
    """The arrays of a bank by name, memory-mapped; those that are not there yet are computed and written.

    Each file is written completely or not at all, so that an interrupted computation continues with the next file.
    """
    total, done = sum(file.count for file in files), 0
    maps: dict[str, np.ndarray] = {}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.touch()  # it was used now
        delete_old_banks(directory)
        for file in files:
            path = directory / f"{file.name}.npy"
            try:
                maps[file.name] = _map(path, file.count)
                done += file.count
                continue
            except FileNotFoundError:
                pass
            except (EOFError, ValueError) as error:
                log.warning("%s is damaged (%s); it is computed again", path, first_line(error))
            with opened_atomically(path) as output:
                for index, batch in enumerate(file.batches()):
                    if index == 0:
                        header = {"descr": "<f2", "fortran_order": False, "shape": (file.count, *batch.shape[1:])}
                        np.lib.format.write_array_header_1_0(output, header)
                    output.write(np.ascontiguousarray(batch, dtype="<f2").tobytes())
                    done += len(batch)
                    progress("computing features", done, total)
            maps[file.name] = _map(path, file.count)
        return maps
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{directory} cannot be written ({reason}); {writing_remedy(error)}") from error


def _map(path: Path, count: int) -> np.ndarray:
    array: np.ndarray = np.load(path, mmap_mode="r")
    if array.dtype != np.float16 or len(array) != count:
        raise ValueError(f"{path.name} has {array.shape} values of type {array.dtype}")
    return array


def delete_old_banks(directory: Path) -> None:
    """Delete all but the most recently used banks; the one in `directory` is kept."""
    others = sorted((path for path in directory.parent.iterdir() if path != directory), key=lambda p: p.stat().st_mtime)
    for path in others[: max(0, len(others) - KEPT + 1)]:
        shutil.rmtree(path, ignore_errors=True)
