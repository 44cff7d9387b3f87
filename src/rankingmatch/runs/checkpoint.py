"""Checkpoints: tensors in safetensors, values in JSON, written atomically and verified when read."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from rankingmatch.core.atomic import write_atomically, write_json
from rankingmatch.core.errors import RunError, setting
from rankingmatch.core.formats import FORMATS, check_format
from rankingmatch.training.snapshot import Snapshot, check_snapshot, restore, take_snapshot, upgrade_tensors
from rankingmatch.training.state import State

__all__ = ["checksums", "restore_latest", "save_checkpoint"]

log = logging.getLogger(__name__)


def save_checkpoint(directory: Path, state: State, keep: int = 2) -> None:
    """Write the state as a checkpoint, and delete all but the `keep` newest ones.

    The JSON file is written last: a checkpoint without it does not count.
    """
    directory.mkdir(exist_ok=True)
    snapshot = take_snapshot(state)
    name = f"step-{state.step:09d}"
    content = save(snapshot.tensors)
    write_atomically(directory / f"{name}.safetensors", content)
    values = {"format": FORMATS["checkpoint"], **snapshot.values}
    write_json(directory / f"{name}.json", {**values, **checksums(values, content)})
    # Checkpoints of later steps were found damaged, or training would not be here: they must not displace good ones.
    kept = [path.stem for path in _checkpoints(directory) if path.stem <= name][:keep]
    for old in directory.glob("step-*"):
        if old.stem not in kept:
            old.unlink()


def checksums(values: dict[str, Any], content: bytes) -> dict[str, str]:
    """Checksums of the tensors' file and of the values in the JSON file, to detect a flipped bit in either."""
    plain = {name: value for name, value in values.items() if not name.startswith("sha256")}
    digests = {"sha256": content, "sha256_of_values": json.dumps(plain, sort_keys=True).encode()}
    return {name: hashlib.sha256(covered).hexdigest() for name, covered in digests.items()}


def restore_latest(directory: Path, state: State) -> bool:
    """Restore the newest intact checkpoint; a damaged one is reported, and the one before it is used.

    Returns False if there is no checkpoint at all; raises RunError if there are some and none can be used.
    """
    paths = _checkpoints(directory)
    for path in paths:
        try:
            snapshot = _read(path, state)
        except (OSError, ValueError, SafetensorError, RecursionError) as error:
            log.warning("checkpoint %s cannot be used (%s)", path.stem, error)
            continue
        restore(state, snapshot)
        return True
    if paths:
        raise RunError(f"no checkpoint in {directory} can be used; start another run with {setting('out')}")
    return False


def _checkpoints(directory: Path) -> list[Path]:
    """The JSON files of the checkpoints, newest first."""
    return sorted(directory.glob("step-*.json"), reverse=True)


def _read(path: Path, state: State) -> Snapshot:
    """A checkpoint, verified completely before any of it is used; raises ValueError if it is damaged."""
    values = json.loads(path.read_text())
    content = path.with_suffix(".safetensors").read_bytes()
    if not isinstance(values, dict):
        raise ValueError("its JSON is not a checkpoint's")  # noqa: TRY004 - about the file, not an argument
    expected = checksums(values, content)
    # Checkpoints of earlier versions have no checksum of their values.
    found = {**expected, "sha256": None, **{name: values.pop(name) for name in expected if name in values}}
    if found != expected:
        raise ValueError("its checksum does not match")
    check_format("checkpoint", values, path)
    values.pop("format", None)
    snapshot = Snapshot(upgrade_tensors(load(content)), values)
    check_snapshot(snapshot, state)
    return snapshot
