"""Which code may be imported: what is installed, and the modules that the user names.

Torch and other packages try to import optional packages. If the current directory were on `sys.path`, a file `dill.py`
or a class folder `pandas/` in it would be imported as one of them. So the command line removes it. A module that the
user names may be there: while it is loaded, modules beside it can be imported, if nothing installed has their name.

An import path that a file contains, such as the header of a model, is the choice of whoever wrote the file. It is used
only if the user trusts files, or has given the same import path.

The command line imports this module first. So its top imports only what Python itself has imported at its start:
anything else might come from the current directory.
"""

import os
import site
import sys

TYPE_CHECKING = False  # the module `typing` is not imported at Python's start
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_trusted: "set[str]" = set()
_files_are_trusted = False


# --- the current directory -----------------------------------------------------------------------------------


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


def import_object(kind: str, path: str) -> "Any":
    """The object that `package.module:name` refers to; ConfigError if it cannot be imported."""
    import importlib.util

    from rankingmatch.core.errors import ConfigError

    module, _, name = path.partition(":")
    first = module.partition(".")[0]
    if first in sys.stdlib_module_names:  # a file from a stranger may contain "os:_exit"
        raise ConfigError(
            f"{kind} '{path}' is part of Python's standard library; use a module of your own or of a package"
        )
    before = list(sys.path)
    try:
        if first not in sys.modules and importlib.util.find_spec(first) is None:
            sys.path.append(os.getcwd())  # noqa: PTH109 - last: it replaces nothing that is installed
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigError(
            f"{kind} '{path}' cannot be imported ({type(error).__name__}: {error}); write package.module:name and run "
            "from a directory where it can be found, or set PYTHONPATH"
        ) from error
    finally:
        sys.path[:] = before
    trust([path])
    return found


# --- import paths in files -----------------------------------------------------------------------------------


def is_import_path(name: str) -> bool:
    """Whether the name of a method or network is an import path: package.module:name."""
    return ":" in name and not name.startswith("timm:")


def trust(names: "Iterable[str | None]") -> None:
    """Allow files to contain these import paths, because the user has given them, too."""
    _trusted.update(name for name in names if name)


def trust_files() -> None:
    """Allow files to contain any import path."""
    global _files_are_trusted
    _files_are_trusted = True


def files_are_trusted() -> bool:
    """Whether import paths in files are imported."""
    return _files_are_trusted


def require_trusted(kind: str, name: str, file: object) -> None:
    """Raise ConfigError unless the name of a method or network in a file may be imported."""
    from rankingmatch.core.errors import ConfigError, setting

    if is_import_path(name) and not _files_are_trusted and name not in _trusted:
        raise ConfigError(
            f"{file} names the {kind} '{name}', which is code that would be run; if you trust it, use "
            f"{setting('trust')}"
        )
