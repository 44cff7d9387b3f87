"""Measurements in one small file each: what a benchmark found, by which command, of which code, when and where.

The tables of the docs are made from these files, without measuring again. Runs of recipes are kept by `kept.py`.
"""

import datetime
import json
import os
import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, RunError, first_line, setting
from rankingmatch.core.options import flag
from rankingmatch.core.untrusted import read_json, typed
from rankingmatch.core.versions import source_commit

__all__ = ["Measurement", "command_line", "keep_rows", "read_measurement", "require_directory"]


@dataclass(frozen=True)
class Measurement:
    """What a benchmark measured.

    Attributes
    ----------
    command
        The command that measures it again.
    commit, date
        The commit of the code ("" if unknown), and the day.
    machine
        Processor, cores, threads of torch, its version, and how busy the machine was.
    rows
        The measured values, not rounded.
    """

    command: str
    commit: str
    date: str
    machine: str
    rows: list[dict[str, Any]]

    def to_text(self) -> str:
        """JSON with one line for each row, so that differences can be read."""
        head = {name: value for name, value in asdict(self).items() if name != "rows"}
        rows = ",\n".join(map(json.dumps, self.rows))
        return f'{json.dumps(head)[:-1]}, "rows": [\n{rows}\n]}}\n'


def keep_rows(path: Path, command: str, rows: list[dict[str, Any]]) -> None:
    """Write rows that were measured just now.

    Parameters
    ----------
    path
        The file, in a directory that exists.
    command
        The command that measured them.
    rows
        The values, which can be JSON.
    """
    today = datetime.date.today().isoformat()
    write_atomically(path, Measurement(command, source_commit(), today, _machine(), rows).to_text().encode())


def read_measurement(path: Path) -> Measurement:
    """The measurement in a file.

    Raises
    ------
    RunError
        If there is something else in the file.
    """
    try:
        return typed(Measurement, read_json(path))
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}; restore it, or measure it again") from error


def command_line(arguments: Sequence[str]) -> str:
    """A command as one types it, without where its results are kept, which does not change them.

    Parameters
    ----------
    arguments
        The words of the command; `--keep DIR` is left out.
    """
    given, words = flag("keep"), list(arguments)
    if given in words:
        position = words.index(given)
        del words[position : position + 2]
    return shlex.join(words)


def require_directory(directory: Path) -> None:
    """Raise ConfigError if the directory for results does not exist, before anything is measured."""
    if not directory.is_dir():
        raise ConfigError(f"{setting('keep')} {directory}: there is no such directory; create it")


def _machine() -> str:
    import torch

    threads = torch.get_num_threads()
    load = f", load {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{platform.machine()} with {os.cpu_count()} CPU cores, {threads} thread{'s' if threads > 1 else ''}, "
        f"torch {torch.__version__}{load}"
    )
