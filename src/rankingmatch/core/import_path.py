"""Which code may be imported: what is installed, and the modules that the user names.

Torch and other packages try to import optional packages. If the current directory were on `sys.path`, a file `dill.py`
or a class folder `pandas/` in it would be imported as one of them. So the command line removes it
(`core/safe_path.py`), and a module named by an import path is looked up there explicitly, after everything installed.

An import path that a file contains, such as the header of a model, is the choice of whoever wrote the file. It is used
only if the user trusts files, or has given the same import path.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from rankingmatch.core.errors import ConfigError, setting

__all__ = [
    "import_object",
    "is_import_path",
    "is_trusted",
    "require_trusted",
    "trust",
    "trust_files",
]

_IMPORTING = ("<frozen importlib", os.path.dirname(importlib.__file__))  # noqa: PTH120
_trusted: set[str] = set()
_files_are_trusted = False


# --- the current directory -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _DirectoryFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of a directory for each other: only code in the directory can import from it."""

    directory: str

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The specification of a module in the directory, if code in the directory asks for it."""
        if path is not None or not self._is_asked_from_inside(sys._getframe(1)):
            return None
        return importlib.machinery.PathFinder.find_spec(fullname, [self.directory])

    def _is_asked_from_inside(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code.co_filename.startswith(_IMPORTING):
            frame = frame.f_back
        if frame is None:
            return False
        file = os.path.abspath(frame.f_code.co_filename)  # noqa: PTH100
        installed = (os.path.join(path, "") for path in sys.path)  # noqa: PTH118 - which may be below the directory
        return file.startswith(self.directory) and not any(map(file.startswith, installed))


def _import_from_current_directory(module: str) -> None:
    """Import the first part of a module's name from the current directory, and let its modules import each other."""
    first, here = module.partition(".")[0], os.getcwd()  # noqa: PTH109
    spec = importlib.machinery.PathFinder.find_spec(first, [here])
    if spec is None or spec.loader is None:  # a directory without code has no loader
        return
    finder = _DirectoryFinder(os.path.join(here, ""))  # noqa: PTH118
    if finder not in sys.meta_path:
        sys.meta_path.append(finder)
    found = importlib.util.module_from_spec(spec)
    sys.modules[first] = found
    try:
        spec.loader.exec_module(found)
    except BaseException:
        sys.modules.pop(first, None)
        raise


def import_object(kind: str, path: str) -> Any:
    """The object that `package.module:name` refers to; ConfigError if it cannot be imported."""
    module, _, name = path.partition(":")
    if module.partition(".")[0] in sys.stdlib_module_names:  # a file from a stranger may contain "os:_exit"
        raise ConfigError(
            f"{kind} '{path}' is part of Python's standard library; use a module of your own or of a package"
        )
    try:
        if module.partition(".")[0] not in sys.modules and importlib.util.find_spec(module.partition(".")[0]) is None:
            _import_from_current_directory(module)
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # a module may raise anything while it is imported
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{kind} '{path}' cannot be imported ({reason}); write package.module:name and run from a directory where "
            "it can be found, or set PYTHONPATH"
        ) from error
    trust([path])
    return found


# --- import paths in files -----------------------------------------------------------------------------------


def is_import_path(name: str) -> bool:
    """Whether the name of a method or network is an import path: package.module:name."""
    return ":" in name and not name.startswith("timm:")


def trust(names: Iterable[str | None]) -> None:
    """Allow files to contain these import paths, because the user has given them, too."""
    _trusted.update(name for name in names if name)


def trust_files() -> None:
    """Allow files to contain any import path."""
    global _files_are_trusted
    _files_are_trusted = True


def files_are_trusted() -> bool:
    """Whether import paths in files are imported."""
    return _files_are_trusted


def is_trusted(name: str) -> bool:
    """Whether a file may contain this name of a method or network."""
    return not is_import_path(name) or _files_are_trusted or name in _trusted


def require_trusted(kind: str, name: str, file: object) -> None:
    """Raise ConfigError unless the name of a method or network in a file may be imported."""
    if not is_trusted(name):
        raise ConfigError(
            f"{file} names the {kind} '{name}', which is code that would be run; if you trust it, use "
            f"{setting('trust')}"
        )
