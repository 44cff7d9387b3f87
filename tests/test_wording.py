"""What the library may say: below the interfaces, options have Python names; one spelling, American, everywhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankingmatch

SOURCE = Path(rankingmatch.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z]")
# They write commands: the one that repeats a run, those of the model card; and torchrun's own flag.
WRITE_COMMANDS = {"runs/config.py", "runs/result.py", "core/devices.py"}
BRITISH = re.compile(
    r"\b\w*(?:colour|behaviour|centre[ds]?\b|licence|(?:normal|optim|initial|recogn|minim|maxim|summar|general)is(?:e|ed|es|ing|ation)\b"
    r"|\bgrey)\w*",
    re.IGNORECASE,
)
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
BELOW = [name for name in MODULES if not name.startswith("cli/") and name not in WRITE_COMMANDS]


def strings_of(path: Path) -> Iterator[str]:
    """Every text in a module that is not a docstring."""
    tree = ast.parse(path.read_text())
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    documented = {
        node.body[0].value
        for node in nodes
        if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documented:
            yield node.value


@pytest.mark.parametrize("name", BELOW)
def test_a_module_below_the_interfaces_does_not_spell_flags(name: str) -> None:
    assert [text for text in strings_of(SOURCE / name) if FLAG.search(text)] == []


@pytest.mark.parametrize("name", MODULES)
def test_spelling_is_american(name: str) -> None:
    text = (SOURCE / name).read_text()
    allowed = {"licence"} if name == "core/untrusted.py" else set()  # the former name of an option
    assert {word.lower() for word in BRITISH.findall(text)} - allowed == set()
