"""Features of images from a pretrained network, computed in a process of its own and cached.

There, the computation does not delay the answers of the server, and its memory is free when it is done. The cache has a
directory for each folder, with blocks of rows that are written completely or not at all. A row is found by the name,
size and time of its file, so that an interrupted computation continues, and new files are added.
"""

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import torch

from rankingmatch.core.atomic import opened_atomically, write_atomically
from rankingmatch.core.errors import DataError, RankingMatchError, first_line, writing_remedy
from rankingmatch.data import decode_files
from rankingmatch.data.bank import bank_directory, bank_key, delete_old_banks
from rankingmatch.labeling.processes import Child

__all__ = ["DIMENSION", "NETWORK", "SIDE", "Features", "compute_blocks", "feature_function"]

NETWORK, SIDE, DIMENSION = "efficientnet-lite0", 224, 1280  # as in `runs.photographs`, which takes long to import
FORMAT = 1  # of the cached features and of the converted network
BLOCK = 128  # rows
ROW = np.dtype([("stamp", "S32"), ("features", np.float16, (DIMENSION,))])
Compute = Callable[[np.ndarray], np.ndarray]


class Features:
    """Features of some files, relative to a folder, which become known one after the other, in this order.

    `values` (n, 1280) float16 are zero in rows that are not `known` (n,) yet, or never will be.
    """

    def __init__(self, root: Path, files: list[str]) -> None:
        self._root, self._files = root, files
        self.values = np.zeros((len(files), DIMENSION), np.float16)
        self.known = np.zeros(len(files), bool)
        self.directory = bank_directory(bank_key(f"labeling {FORMAT} {NETWORK} {SIDE} {root.resolve()}"))
        self._child: Child | None = None
        self._stopping = threading.Event()

    def compute(self, progress: Callable[[int], None], unreadable: Callable[[int], None]) -> None:
        """Read or compute all features; raise DataError if that is impossible.

        `progress` is called with the number of files that are done, `unreadable` with the index of each file that
        cannot be decoded.
        """
        stamps = [_stamp(self._root, file) for file in self._files]
        row_of = {stamp.encode(): row for row, stamp in enumerate(stamps)}
        self._read_cache(row_of)
        done = int(self.known.sum())
        progress(done)
        missing = [(self._files[row], stamps[row]) for row in np.flatnonzero(~self.known)]
        for answer in self._computed(missing) if missing and not self._stopping.is_set() else ():
            # Without readable images, there is no block.
            done += self._insert(self.directory / answer["block"], row_of) + len(answer["bad"])
            for stamp in answer["bad"]:
                unreadable(row_of[stamp.encode()])
            progress(done)

    def stop(self) -> None:
        """Stop the computation; what is cached is kept."""
        self._stopping.set()
        if self._child is not None:
            self._child.stop()

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

    def _computed(self, missing: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """The answers of the process that computes: `compute_blocks` for files and stamps."""
        files = [(os.path.join(self._root, file), stamp) for file, stamp in missing]  # noqa: PTH118
        request = json.dumps({"directory": str(self.directory), "files": files}).encode()
        self._child = Child("rankingmatch.labeling.features", request=request)
        yield from self._child.answers()


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
    compute = feature_function()
    rows: list[tuple[bytes, np.ndarray]] = []
    bad: list[str] = []
    done = 0
    for decoded in decode_files(stamp_of, (SIDE, SIDE, 3), crop=True):
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


def feature_function() -> Compute:
    """The frozen network: (n, h, w, 3) uint8 images → (n, 1280), in ONNX Runtime if it computes the same as torch."""
    from rankingmatch.networks.onnx import onnx_session, to_onnx

    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    path = platformdirs.user_cache_path("rankingmatch") / "weights" / f"{NETWORK}-{SIDE}-{FORMAT}.onnx"

    def in_onnx_runtime(content: bytes) -> Compute:
        session = onnx_session(content)
        return lambda images: np.asarray(session.run(None, {"images": _channels_first(images)})[0])

    try:
        return in_onnx_runtime(path.read_bytes())
    except Exception:  # it is not there yet, or it is damaged
        lower = _FrozenNetwork().eval()

    def in_torch(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(lower(torch.from_numpy(_channels_first(images))).numpy())

    example = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3)).astype(np.uint8)
    try:
        content = to_onnx(lower, torch.from_numpy(_channels_first(example)), "features").SerializeToString()
        compute = in_onnx_runtime(content)
        if not np.allclose(compute(example), in_torch(example), atol=1e-2):
            return in_torch
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except Exception:  # of many kinds
        return in_torch
    return compute


class _FrozenNetwork(torch.nn.Module):
    """The pretrained network without its head: (n, 3, h, w) uint8 → (n, 1280)."""

    def __init__(self) -> None:
        from rankingmatch.networks import freeze, make_classifier

        super().__init__()
        self.model = make_classifier(NETWORK, 2, pretrained=True)
        freeze(self.model, "head")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model.maps(images).flatten(1)


def _channels_first(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


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
