"""Run the notebooks: `python tests/helpers/notebooks.py` writes their outputs into them."""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

DIRECTORY = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(DIRECTORY.glob("*.ipynb"))


def executed(path: Path, directory: Path) -> nbformat.NotebookNode:
    """A notebook with the outputs of running it in a directory, with one thread; raises an error where a cell does."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    commands = str(Path(sys.executable).parent)  # for `!rankingmatch`
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys([commands, *os.environ["PATH"].split(os.pathsep)]))
    place = {"metadata": {"path": str(directory)}}
    return NotebookClient(notebook, timeout=600, record_timing=False, resources=place).execute()


def main() -> None:
    """Run all notebooks, or those that are named, and write their outputs."""
    for path in NOTEBOOKS:
        if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as directory:
                nbformat.write(executed(path, Path(directory)), path)
            print(path.name)


if __name__ == "__main__":
    main()
