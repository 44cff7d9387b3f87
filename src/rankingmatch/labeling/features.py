"""Features of pictures from a pretrained network, computed in a process of its own and cached.

The cache has a directory for each folder, with blocks of rows that are written completely or not at all. A row is found
by the name, size and time of its file, so that an interrupted computation continues, and new files are added.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from rankingmatch.core.errors import DataError, writing_remedy
from rankingmatch.data.bank import bank_directory, bank_key, delete_old_banks
from rankingmatch.labeling.feature_process import DIMENSION, FORMAT, NETWORK, ROW, SIDE

__all__ = ["Features"]


class Features:
    """Features of some pictures, which become available one after the other.

    Parameters
    ----------
    root
        The folder.
    files
        The pictures, relative to the folder, in the order in which their features are wanted.

    Attributes
    ----------
    values : numpy.ndarray
        Features (len(files), 1280), float16; rows that are not known yet, or never will be, are zero.
    known : numpy.ndarray
        Which rows are known, (len(files),) bool.
    """

    def __init__(self, root: Path, files: list[str]) -> None:
        self._root, self._files = root, files
        self.values = np.zeros((len(files), DIMENSION), np.float16)
        self.known = np.zeros(len(files), bool)
        self.directory = bank_directory(bank_key(f"labeling {FORMAT} {NETWORK} {SIDE} {root.resolve()}"))
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    def compute(self, progress: Callable[[int], None], unreadable: Callable[[int, str], None]) -> None:
        """Read or compute all features.

        Parameters
        ----------
        progress
            Called with the number of pictures that are done.
        unreadable
            Called with the index of each picture that cannot be decoded, and the reason.

        Raises
        ------
        DataError
            If they cannot be computed.
        """
        stamps = [_stamp(self._root, file) for file in self._files]
        row_of = {stamp: row for row, stamp in enumerate(stamps)}
        self._read_cache(row_of)
        done = int(self.known.sum())
        progress(done)
        missing: list[int] = np.flatnonzero(~self.known).tolist()
        if missing and not self._stopping.is_set():
            for block, bad in self._computed([(self._files[row], stamps[row]) for row in missing]):
                done += self._insert(block, row_of) + len(bad)
                for stamp, reason in bad:
                    unreadable(row_of[stamp.encode()], reason)
                progress(done)

    def stop(self) -> None:
        """Stop the computation; what is cached is kept."""
        self._stopping.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _read_cache(self, row_of: dict[bytes, int]) -> None:
        """Take the rows that are cached; blocks without any are deleted."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.touch()  # it was used now
            delete_old_banks(self.directory)
            for path in self.directory.glob("*.npy"):
                if self._insert(path, row_of) == 0:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(
                f"{self.directory} cannot be written ({error.strerror}); {writing_remedy(error)}"
            ) from error

    def _insert(self, path: Path, row_of: dict[bytes, int]) -> int:
        """Take the rows of a block that are wanted; returns how many there are."""
        try:
            block = np.load(path)
        except (OSError, ValueError, EOFError):
            return 0
        if block.dtype != ROW:
            return 0
        found = [(row_of[stamp], at) for at, stamp in enumerate(block["stamp"]) if stamp in row_of]
        for row, at in found:
            self.values[row] = block["features"][at]
            self.known[row] = True
        return len(found)

    def _computed(self, missing: list[tuple[str, bytes]]) -> Iterator[tuple[Path, list[tuple[str, str]]]]:
        """Start the process that computes, and pass on the blocks that it has written."""
        request = {
            "directory": str(self.directory),
            "files": [[os.path.join(self._root, file), stamp.decode()] for file, stamp in missing],  # noqa: PTH118
        }
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rankingmatch.labeling.feature_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(request).encode())
                process.stdin.close()
            problem = "the process ended"
            for line in process.stdout:
                answer = json.loads(line)
                problem = answer.get("problem", problem)
                if "block" in answer:
                    yield self.directory / answer["block"], answer["bad"]  # without readable pictures, a directory
        if process.returncode != 0 and not self._stopping.is_set():
            raise DataError(f"the features of the pictures cannot be computed: {problem}")


def _stamp(root: Path, file: str) -> bytes:
    """What identifies the content of a file: name, size and time."""
    try:
        status = os.stat(os.path.join(root, file))  # noqa: PTH116, PTH118
        content = f"{file}\0{status.st_size}\0{status.st_mtime_ns}"
    except OSError:
        content = f"{file}\0missing"
    return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:32].encode()
