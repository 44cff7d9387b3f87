"""Checkpoints: tensors in safetensors, values in JSON, written atomically and verified when read."""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from rankingmatch.core.atomic import write_atomically, write_json
from rankingmatch.core.errors import RunError, setting
from rankingmatch.core.untrusted import FORMATS, check_format, check_value, read_bytes, read_json
from rankingmatch.training.snapshot import Snapshot, check_snapshot, restore, take_snapshot
from rankingmatch.training.state import State

log = logging.getLogger(__name__)

MOST_VALUES = 2**20  # bytes of the JSON file
MOST_TIMES = 8  # the size of a fresh state: what an optimizer stores for each weight is added at the first step


def save_checkpoint(directory: Path, state: State, keep: int = 2, *, identity: Mapping[str, Any] | None = None) -> None:
    """Write the state as a checkpoint, and delete all but the `keep` newest ones.

    The JSON file is written last: a checkpoint without it does not count. It also has the `identity` of the run, by
    which `restore_latest` recognizes the checkpoint of another run.
    """
    directory.mkdir(exist_ok=True)
    snapshot = take_snapshot(state)
    name = f"step-{state.step:09d}"
    content = save(snapshot.tensors)
    write_atomically(directory / f"{name}.safetensors", content)
    values = {"format": FORMATS["checkpoint"], **({"run": identity} if identity else {}), **snapshot.values}
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


def restore_latest(directory: Path, state: State, *, identity: Mapping[str, Any] | None = None) -> bool:
    """Restore the newest intact checkpoint; a damaged one is reported, and the one before it is used.

    Returns False if there is no checkpoint at all; raises RunError if there are some and none can be used, or if one is
    of a run with another `identity`.
    """
    paths = _checkpoints(directory)
    for path in paths:
        try:
            snapshot = _read(path, state, identity or {})
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


def _read(path: Path, state: State, identity: Mapping[str, Any]) -> Snapshot:
    """A checkpoint, verified completely before any of it is used; raises ValueError if it is damaged."""
    values = read_json(path, MOST_VALUES)
    size = sum(tensor.nbytes for tensor in take_snapshot(state).tensors.values())
    content = read_bytes(path.with_suffix(".safetensors"), MOST_TIMES * size + MOST_VALUES)
    expected = checksums(values, content)
    if {name: values.pop(name, None) for name in expected} != expected:
        raise ValueError("its checksum does not match")
    check_format("checkpoint", values, path)
    values.pop("format", None)
    run = check_value("run", values.pop("run", {}), dict)  # of an earlier version, it does not have all the values
    for name in sorted(identity.keys() & run.keys()):
        if run[name] != identity[name]:
            raise RunError(
                f"{path} is of another run: its {name} is {run[name]!r:.40}, not {identity[name]!r:.40}; restore the "
                f"files of this run, or start another one with {setting('out')}"
            )
    snapshot = Snapshot(load(content), values)
    check_snapshot(snapshot, state)
    return snapshot
