"""The fenced blocks of a page, run as they are written.

A comment on the line before a block says what it is, unless it is Python or a shell's commands to be run:

    <!-- file: NAME -->       the content of a file, written where the page's commands find it
    <!-- output -->           what the commands before it print; … stands for anything
    <!-- not run: REASON -->  one of REASONS, and what follows it
"""

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rankingmatch.cli import main

ROOT = Path(__file__).parents[2]
REASONS = ("needs GPUs", "needs the network", "needs data", "takes ", "a sketch", "for make")
FENCE = re.compile(
    r"(?:<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
FOR_A_SHELL = set("|&;><$`")


class Block(NamedTuple):
    """A fenced block, what it is written in, and what the comment before it says."""

    language: str
    note: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order; every fence belongs to one."""
    text = page.read_text()
    found = [Block(match["language"], match["note"] or "", match["text"]) for match in FENCE.finditer(text)]
    assert text.count("```") == 2 * len(found), f"{page}: a fence that is not at the beginning of a line, or not closed"
    return found


def run_page(page: Path) -> None:
    """Run the blocks of a page in the current directory."""
    names: dict[str, object] = {"__name__": "__docs__"}
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        for block in blocks_of(page):
            try:
                run_block(block, names, shown)
            except AssertionError as error:
                raise AssertionError(f"{page.name}: {error}\n{shown.getvalue()[-2000:]}") from error


def run_block(block: Block, names: dict[str, object], shown: io.StringIO) -> None:
    """Run a block, write it or compare it, as its note and its language say."""
    kind, _, rest = block.note.partition(": ")
    if kind == "file":
        Path(rest).write_text(block.text)
    elif kind == "output":
        for line in block.text.splitlines():
            assert re.search(".*".join(map(re.escape, line.split("…"))), shown.getvalue()), f"not shown: {line}"
    elif kind == "not run":
        assert rest.startswith(REASONS), f"'{rest}' is none of the reasons not to run a block: {REASONS}"
    elif block.language == "python":
        exec(compile(block.text, "a block of the docs", "exec"), names)
    elif block.language == "sh":
        for line in block.text.replace("\\\n", " ").splitlines():
            run_line(line)
    else:
        raise AssertionError(f"a block of '{block.language}': say above it what it is\n{block.text}")


def run_line(line: str) -> None:
    """Run a line of a shell; a plain call of the command line is run in this process, which is quicker."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "rankingmatch" and not FOR_A_SHELL & set(" ".join(words)):
        try:
            names = (sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words[1:])
            main([*chain.from_iterable(names)])
        except SystemExit as leave:
            if leave.code:
                raise AssertionError(f"{line}: exit code {leave.code}") from None
        return
    own = f'python() {{ "{sys.executable}" "$@"; }}; rankingmatch() {{ python -m rankingmatch "$@"; }}; '
    done = subprocess.run(["bash", "-ec", own + line], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    print(done.stdout + done.stderr)
