"""Keeping the current directory off `sys.path`, where its files would be taken for packages.

This module imports only what Python itself has imported at its start: anything else might come from that directory.
"""

import os
import site
import sys

__all__ = ["forget_current_directory", "is_command_line"]


def is_command_line() -> bool:
    """Whether Python is importing this package for its command: `rankingmatch`, or `python -m rankingmatch`."""
    if sys.argv[:1] != ["-m"]:
        return bool(sys.argv) and os.path.basename(sys.argv[0]) in ("rankingmatch", "rankingmatch.exe")  # noqa: PTH119
    words = sys.orig_argv
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    return module.partition(".")[0] == "rankingmatch"


def forget_current_directory() -> None:
    """Remove the current directory from `sys.path`, here and in all Python processes started from here.

    It stays if PYTHONPATH names it, or if packages are installed in it.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        here = os.path.realpath(os.getcwd())  # noqa: PTH109
    except OSError:  # it has been deleted
        here = ""
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    own = os.path.join(os.path.dirname(__file__), "..", "..")  # noqa: PTH118, PTH120
    kept = {os.path.realpath(path) for path in (*named, own, *site.getsitepackages(), site.getusersitepackages())}
    if own_is_here := here == os.path.realpath(own):  # not installed, but run where its source is
        named.append(here)
    if own_is_here or "PYTHONPATH" in os.environ:
        os.environ["PYTHONPATH"] = os.pathsep.join(named)  # an empty entry would be the current directory
    sys.path[:] = [path for path in sys.path if path and (os.path.realpath(path) != here or here in kept)]
