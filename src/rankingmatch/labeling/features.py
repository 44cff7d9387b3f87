"""Features of images from a pretrained network, computed in a process of its own and cached.

There, the computation does not delay the answers of the server, and its memory is free when it is done. The cache has a
directory for each folder, with blocks of rows that are written completely or not at all. A row is found by the name,
size and time of its file, so that an interrupted computation continues, and new files are added.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankingmatch.core.atomic import opened_atomically
from rankingmatch.core.errors import DataError, RankingMatchError, first_line, writing_remedy
from rankingmatch.data import decode_files
from rankingmatch.data.bank import bank_directory, bank_key, delete_old_banks
from rankingmatch.runs.photographs import default_network

DIMENSION = 1280  # of every network that `default_network` may choose
FORMAT = 1  # of the cached features
BLOCK = 128  # rows
ROW = np.dtype([("stamp", "S32"), ("features", np.float16, (DIMENSION,))])
Compute = Callable[[np.ndarray], np.ndarray]


class Features:
    """Features of some files, relative to a folder, which become known one after the other.

    `values` (n, 1280) float16 are zero in rows that are not `known` (n,) yet, or never will be.
    """

    def __init__(self, root: Path, files: list[str]) -> None:
        self._root, self._files = root, files
        self.values = np.zeros((len(files), DIMENSION), np.float16)
        self.known = np.zeros(len(files), bool)
        network, side = default_network()
        self.directory = bank_directory(bank_key(f"labeling {FORMAT} {network} {side} {root.resolve()}"))
        self._row_of: dict[bytes, int] = {}  # by the stamp of the file

    def read_cache(self) -> bytes:
        """Take the rows that are cached; the result is the request to compute the others, empty if there are none.

        Blocks without any of the rows are deleted. Raise DataError if the cache cannot be written.
        """
        stamps = [_stamp(self._root, file) for file in self._files]
        self._row_of = {stamp.encode(): row for row, stamp in enumerate(stamps)}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.touch()  # it was used now
            delete_old_banks(self.directory)
            for path in self.directory.glob("*.npy"):
                if not self._insert(path):
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(
                f"{self.directory} cannot be written ({error.strerror}); {writing_remedy(error)}"
            ) from error
        missing = np.flatnonzero(~self.known)
        files = [(os.path.join(self._root, self._files[row]), stamps[row]) for row in missing]  # noqa: PTH118
        return json.dumps({"directory": str(self.directory), "files": files}).encode() if files else b""

    def add(self, answer: dict[str, Any]) -> list[int]:
        """Take a block that was computed; the result is the rows of files that cannot be decoded."""
        self._insert(self.directory / answer["block"])  # without readable images, there is no block
        return [self._row_of[stamp.encode()] for stamp in answer["bad"]]

    def _insert(self, path: Path) -> bool:
        """Take the rows of a block that are wanted; says whether there are any."""
        try:
            block = np.load(path)
        except (OSError, ValueError, EOFError):
            return False
        if block.dtype != ROW:
            return False
        found = [(self._row_of[stamp], at) for at, stamp in enumerate(block["stamp"]) if stamp in self._row_of]
        for row, at in found:
            self.values[row] = block["features"][at]
            self.known[row] = True
        return bool(found)


def _stamp(root: Path, file: str) -> str:
    """What identifies the content of a file: name, size and time."""
    try:
        status = os.stat(os.path.join(root, file))  # noqa: PTH116, PTH118
        content = f"{file}\0{status.st_size}\0{status.st_mtime_ns}"
    except OSError:
        content = f"{file}\0missing"
    return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def compute_blocks(directory: Path, files: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Compute features of files, given with their stamps, and write them to the directory in blocks.

    For each block, it gives its name and the stamps of the files that cannot be decoded.
    """
    stamp_of = dict(files)
    compute, (_, side) = feature_function(len(stamp_of)), default_network()
    rows: list[tuple[bytes, np.ndarray]] = []
    bad: list[str] = []
    done = 0
    for decoded in decode_files(stamp_of, (side, side, 3), crop=True):
        done += len(decoded.files) + len(decoded.bad)
        bad += [stamp_of[file] for file, _ in decoded.bad]
        if decoded.files:
            values = compute(decoded.images)
            rows += [(stamp_of[file].encode(), row) for file, row in zip(decoded.files, values, strict=True)]
        if len(rows) + len(bad) >= BLOCK or done == len(stamp_of):
            name = f"{rows[0][0].decode()}.npy" if rows else ""
            if rows:
                with opened_atomically(directory / name) as file:
                    np.save(file, np.array(rows, ROW))
            yield {"block": name, "bad": bad}
            rows, bad = [], []


def feature_function(count: int) -> Compute:
    """The network without its head: (n, h, w, 3) uint8 → (n, 1280); in ONNX Runtime if `count` images are worth it."""
    from rankingmatch.networks import make_classifier
    from rankingmatch.networks.onnx import accelerated

    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    network = accelerated(make_classifier(default_network()[0], 2, pretrained=True).eval(), count)

    def compute(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(network(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).features)

    return compute


def main() -> None:
    """Read a request from standard input and answer on standard output."""
    request = json.load(sys.stdin)
    try:
        for answer in compute_blocks(Path(request["directory"]), request["files"]):
            print(json.dumps(answer), flush=True)
    except BrokenPipeError:
        os._exit(1)  # the server is gone
    except (RankingMatchError, OSError) as error:
        sys.exit(f"error: {first_line(error)}")


if __name__ == "__main__":
    main()
