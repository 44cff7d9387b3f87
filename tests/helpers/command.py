"""The command line in a process of its own, without the seconds that importing torch takes.

A server process imports everything once; each command is a fork of it, at work in moments. To its caller it is what
`python -m rankingmatch` would be: its own directory, environment, arguments, streams, signal handlers and exit code.
"""

import multiprocessing
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "onnxruntime",
        "rankingmatch.bench",
        "rankingmatch.cli",
        "rankingmatch.cli.flags",
        "rankingmatch.cli.printing",
        "rankingmatch.runs.display",
        "rankingmatch.runs.report",
        "sklearn.datasets",
        "torch._dynamo",  # what the first step of an optimizer imports
    ]
)


class Command:
    """A command that was started, like a `subprocess.Popen` whose output is read at its end."""

    def __init__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        stderr: Path | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        """Start `rankingmatch ARGUMENTS…`; `prepare` is called in the new process first.

        Standard error is appended to the file or the terminal `stderr`, if one is given.
        """
        self.arguments = [str(argument) for argument in arguments]
        streams = Path(tempfile.mkdtemp(prefix="command-"))
        weakref.finalize(self, shutil.rmtree, streams, ignore_errors=True)
        self._out, self._err = streams / "out", stderr or streams / "err"
        (streams / "in").write_text(stdin)
        paths = (streams / "in", self._out, self._err)
        environment = dict(os.environ if env is None else env)
        self._process = _CONTEXT.Process(
            target=_become, args=(self.arguments, cwd or Path.cwd(), environment, paths, prepare)
        )
        self._process.start()

    @property
    def exitcode(self) -> int | None:
        """None while the process runs; the negative number of the signal that ended it."""
        return self._process.exitcode

    def kill(self, sent: signal.Signals = signal.SIGKILL) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, sent)

    def join(self, timeout: float) -> None:
        self._process.join(timeout)

    def wait(self, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """Wait for the end, and give what the command wrote."""
        self.join(timeout)
        if self.exitcode is None:
            self.kill()
            raise subprocess.TimeoutExpired(self.arguments, timeout)
        out, err = (path.read_text() if path.is_file() else "" for path in (self._out, self._err))
        return subprocess.CompletedProcess(self.arguments, self.exitcode, out, err)


def run_command(*arguments: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    """`rankingmatch ARGUMENTS…` from start to end."""
    return Command(*arguments, **options).wait()


def _become(
    arguments: list[str],
    cwd: Path,
    environment: Mapping[str, str],
    streams: tuple[Path, Path, Path],
    prepare: Callable[[], object] | None,
) -> None:
    """In the new process: be what `python -m rankingmatch` is."""
    for number, (name, path) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        flags = os.O_RDONLY if name == "stdin" else os.O_WRONLY | os.O_APPEND | os.O_CREAT
        opened = os.open(path, flags | os.O_NOCTTY, 0o644)  # a file, or a terminal
        os.dup2(opened, number)
        os.close(opened)
        mode, buffering = "r" if name == "stdin" else "w", 1 if name == "stderr" else -1
        setattr(sys, name, open(number, mode, buffering, closefd=False))  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["rankingmatch", *arguments]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores SIGINT
    if prepare is not None:
        prepare()
    runpy.run_module("rankingmatch", run_name="__main__", alter_sys=True)
