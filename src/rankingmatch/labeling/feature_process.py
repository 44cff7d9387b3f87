"""The process that computes features; it reads a request from standard input.

In a process of its own, it does not delay the answers of the server, and its memory is free when it is done.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
import platformdirs

from rankingmatch.core.atomic import opened_atomically, write_atomically
from rankingmatch.core.errors import RankingMatchError, first_line
from rankingmatch.data import decode_files

__all__ = ["DIMENSION", "FORMAT", "NETWORK", "ROW", "SIDE", "compute_blocks", "feature_function"]

NETWORK, SIDE, DIMENSION = "efficientnet-lite0", 224, 1280  # as in `runs.photographs`, which would import torch
FORMAT = 1  # of the cached features and of the converted network
BLOCK = 128  # rows
ROW = np.dtype([("stamp", "S32"), ("features", np.float16, (DIMENSION,))])
Compute = Callable[[np.ndarray], np.ndarray]


def compute_blocks(directory: Path, files: Iterable[tuple[str, str]], answers: IO[str]) -> None:
    """Compute features of files, write them in blocks, and print the name of each block.

    Parameters
    ----------
    directory
        Where blocks are written.
    files
        Paths and stamps.
    answers
        Gets a line of JSON for each block, with its name and the stamps of the pictures that cannot be decoded.
    """
    stamp_of = dict(files)
    compute = feature_function()
    rows: list[tuple[bytes, np.ndarray]] = []
    bad: list[tuple[str, str]] = []
    done = 0
    for decoded in decode_files(stamp_of, (SIDE, SIDE, 3), crop=True):
        done += len(decoded.files) + len(decoded.bad)
        bad += [(stamp_of[file], reason) for file, reason in decoded.bad]
        if decoded.files:
            values = compute(decoded.images)
            rows += [(stamp_of[file].encode(), row) for file, row in zip(decoded.files, values, strict=True)]
        if len(rows) + len(bad) >= BLOCK or done == len(stamp_of):
            block = _write_block(directory, rows)
            print(json.dumps({"block": block, "bad": bad}), file=answers, flush=True)
            rows, bad = [], []


def _write_block(directory: Path, rows: list[tuple[bytes, np.ndarray]]) -> str:
    """Write rows to a new file; returns its name, which is empty without rows."""
    if not rows:
        return ""
    path = directory / f"{rows[0][0].decode()}.npy"
    with opened_atomically(path) as file:
        np.save(file, np.array(rows, ROW))
    return path.name


def feature_function() -> Compute:
    """The frozen network: (n, h, w, 3) uint8 images → (n, 1280), in ONNX Runtime if possible."""
    import torch

    from rankingmatch.networks.onnx import onnx_session

    path = platformdirs.user_cache_path("rankingmatch") / "weights" / f"{NETWORK}-{SIDE}-{FORMAT}.onnx"
    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        session = onnx_session(path.read_bytes())
    except Exception:  # it is not there yet, or it is damaged
        return _convert(path)
    return lambda images: np.asarray(session.run(None, {"images": _channels_first(images)})[0])


def _convert(path: Path) -> Compute:
    """The network in ONNX Runtime, saved for the next time; in torch, if ONNX Runtime does not compute the same."""
    import torch

    from rankingmatch.networks.onnx import onnx_session, to_onnx

    lower = _frozen_network()

    def in_torch(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(lower(torch.from_numpy(_channels_first(images))).numpy())

    example = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3)).astype(np.uint8)
    try:
        content = to_onnx(lower, torch.from_numpy(_channels_first(example)), "features").SerializeToString()
        session = onnx_session(content)
        values = session.run(None, {"images": _channels_first(example)})[0]
        if not np.allclose(values, in_torch(example), atol=1e-2):
            return in_torch
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except Exception:  # of many kinds
        return in_torch
    return lambda images: np.asarray(session.run(None, {"images": _channels_first(images)})[0])


def _frozen_network() -> Any:
    """The pretrained network without its head, as a module: (n, 3, h, w) uint8 → (n, 1280)."""
    import torch

    from rankingmatch.networks import freeze, make_classifier

    class Lower(torch.nn.Module):
        """The frozen part of the network."""

        def __init__(self) -> None:
            super().__init__()
            self.model = make_classifier(NETWORK, 2, pretrained=True)
            freeze(self.model, "head")

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.model.maps(images).flatten(1)

    return Lower().eval()


def _channels_first(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def main() -> None:
    """Read a request from standard input and answer on standard output."""
    request = json.load(sys.stdin)
    try:
        compute_blocks(Path(request["directory"]), [(file, stamp) for file, stamp in request["files"]], sys.stdout)
    except BrokenPipeError:
        os._exit(1)  # the server is gone
    except (RankingMatchError, OSError) as error:
        print(json.dumps({"problem": first_line(error)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
