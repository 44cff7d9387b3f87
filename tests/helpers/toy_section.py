"""A section added to a copy of the package, as a contributor would add it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import rankingmatch

TOY_PYTHON = """
from typing import TypedDict

from rankingmatch.report.sections import ReportInput, Section


class ToyData(TypedDict):
    names: list[str]


def toy_data(report: ReportInput) -> ToyData:
    return {"names": [run.name for run in report.runs]}


SECTION = Section("toy", "Toy section", toy_data)
"""
TOY_JAVASCRIPT = """
/**
 * @typedef {Object} ToyData
 * @property {string[]} names
 */
const card = "a name that other sections use, too";
registerSection("toy", (container, data) => container.append(paragraph("Runs: " + data.names.join(", "))));
"""
WRITE_PAGE = """
import sys
from synthetic_runs import make_run
from rankingmatch.report import page_content, render_page
from rankingmatch.report.sections import embedding
embedding.embed = lambda vectors: vectors[:, :2]
print(render_page(page_content([make_run(name="first run")])))
"""


def page_with_toy_section(directory: Path) -> Path:
    """A page made by a copy of the package to which a section was added: two files and a line."""
    source = Path(rankingmatch.__file__).parent
    package = directory / "src" / "rankingmatch"
    for name in ("core", "report"):
        shutil.copytree(source / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    sections = package / "report" / "sections"
    (sections / "toy.py").write_text(TOY_PYTHON)
    (package / "report" / "page" / "sections" / "toy.js").write_text(TOY_JAVASCRIPT)
    names = sections / "__init__.py"
    names.write_text(names.read_text().replace('"training"', '"training", "toy"'))
    variables = {**os.environ, "PYTHONPATH": f"{directory / 'src'}{os.pathsep}{Path(__file__).parent}"}
    command = [sys.executable, "-c", WRITE_PAGE]
    made = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    page = directory / "report.html"
    page.write_text(made.stdout)
    return page
