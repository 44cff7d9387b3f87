"""Pages of the site that are not files in docs/: pages of the repository root, examples, notebooks, API reference."""

import ast
import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-promises.md",
    "SUPPORT.md": "support.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
COPIED_FILES = ("CITATION.cff", "LICENSE")
LINK = re.compile(r"(?<=\]\()(?!https?:|data:)[^)#]+")


class Reference(NamedTuple):
    """A page of the API reference: its title, an introduction, and what is documented on it, in this order."""

    title: str
    introduction: str
    names: tuple[str, ...]


INTERNAL = "*Outside the [deprecation policy](../CONTRIBUTING.md#deprecation-policy): they may change at any time.*"
REFERENCES = {
    "api/estimator.md": Reference(
        "Estimator",
        "The scikit-learn interface; [the guide](estimator.md) has examples.",
        ("RankingMatchClassifier",),
    ),
    "api/runs.md": Reference(
        "Runs",
        "The commands `train`, `evaluate`, `predict` and `export` as functions, and the run directory.",
        ("train", "evaluate", "predict", "export", "Run", "runs.directory.Result", "runs.export.Exported"),
    ),
    "api/losses.md": Reference("Losses", "", ("losses",)),
    "api/augment.md": Reference(
        "Augmentation",
        "`OPERATIONS` has all operations by name; `RANDAUGMENT_NAMES` and `CTAUGMENT_NAMES` are those of the policies.",
        ("augment",),
    ),
    "api/networks.md": Reference(
        "Networks", "`NETWORKS` has all networks by name.", ("networks", "networks.wide_resnet.wide_resnet")
    ),
    "api/methods.md": Reference(
        "Methods",
        "`METHODS` has all methods by name, each with a `MethodInfo`. Their [formulas](methods/index.md).",
        ("methods", "methods.targets", "methods.passes", "methods.mixing", "methods.rebalancing"),
    ),
    "api/errors.md": Reference(
        "Errors",
        "Errors that a user can cause are subclasses of `RankingMatchError`. Import them from `rankingmatch`.",
        ("core.errors",),
    ),
    "api/training.md": Reference(
        "Training loop",
        f"The loop behind the command line and the estimator. {INTERNAL}",
        (
            "training.loop.train",
            "training.loop.training_step",
            "training.loop.update_ema",
            "training.state.initial_state",
            "training.state.State",
            "training.settings.TrainSettings",
            "training.records.Record",
        ),
    ),
    "api/predictions.md": Reference(
        "Predictions",
        f"Loading a saved model, predicting files, and writing tables. {INTERNAL}",
        ("runs.model", "runs.predict"),
    ),
    "api/bench.md": Reference("Grids of runs", INTERNAL, ("bench",)),
}
# The members of classes that also have others, which only the package itself uses.
MEMBERS = {
    "RankingMatchClassifier": ("fit", "predict", "predict_proba", "score", "save", "load"),
    "Run": ("exists", "config", "result", "history", "step_costs", "load_model"),
    "runs.directory.Result": (),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the nav that are not files in docs/."""
    for path in filter(lambda path: files.get_file_from_path(path) is None, _paths(config.nav)):
        files.append(File.generated(config, path, content=_content(path)))
    for name in COPIED_FILES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links lead to the same page or file on the site as in the repository."""
    here = PurePosixPath(page.file.src_path)
    folder = _in_repository(here).parent

    def on_site(link: re.Match[str]) -> str:
        target = _on_site(os.path.normpath(folder / link[0]))
        return os.path.relpath(target, here.parent)

    return LINK.sub(on_site, markdown)


def _in_repository(page: PurePosixPath) -> PurePosixPath:
    """The file that a page of the site is made of. The API reference has its links as if it were in docs/."""
    for name, path in ROOT_PAGES.items():
        if path == str(page):
            return PurePosixPath(name)
    if page.name.startswith("notebook-"):
        return PurePosixPath("notebooks", page.name)
    return PurePosixPath("docs", page.name if page.parent.name == "api" else page)


def _on_site(target: str) -> str:
    """Where a file of the repository is on the site."""
    place = PurePosixPath(target)
    if place.parts[0] == "docs":
        return str(place.relative_to("docs"))
    if place.parts[0] == "notebooks":
        return f"notebook-{place.stem}.md"
    return "examples.md" if place.parts[0] == "examples" else ROOT_PAGES.get(target, target)


def _paths(nav: Any) -> list[str]:
    """The pages of a nav, in order."""
    if isinstance(nav, str):
        return [nav]
    return [path for part in (nav.values() if isinstance(nav, dict) else nav) for path in _paths(part)]


def _content(path: str) -> str:
    if path in REFERENCES:
        return _reference(REFERENCES[path])
    if path == "examples.md":
        return _examples()
    if path.startswith("notebook-"):
        return _notebook(ROOT / "notebooks" / path.removeprefix("notebook-").replace(".md", ".ipynb"))
    (name,) = (name for name, page in ROOT_PAGES.items() if page == path)
    return (ROOT / name).read_text()


def _reference(page: Reference) -> str:
    """A page of the API reference: the names of the first module directly, all others below a heading of their own."""
    text = f"# {page.title}\n\n{page.introduction}\n"
    for name in page.names:
        options = ["show_root_heading: true", "show_root_toc_entry: true", "show_root_full_path: true"]
        if name in MEMBERS:
            options.append(f"members: {list(MEMBERS[name])}")
        if name == page.names[0] and _is_module(name):
            options = []
        lines = "".join(f"      {option}\n" for option in options)
        text += f"\n::: rankingmatch.{name}\n" + (f"    options:\n{lines}" if lines else "")
    return text


def _is_module(name: str) -> bool:
    path = ROOT / "src/rankingmatch" / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def _examples() -> str:
    """Every script in examples/ with its docstring."""
    text = "# Examples\n\nThe scripts in the folder `examples/`; the tests run each of them.\n"
    for script in sorted((ROOT / "examples").glob("*.py")):
        source = script.read_text()
        text += f"\n## {script.stem}\n\n{ast.get_docstring(ast.parse(source))}\n\n```python\n{source}```\n"
    return text


def _notebook(path: Path) -> str:
    """A notebook as a page: its text, its code, and what the code printed and drew."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [_output(output) for output in cell.get("outputs", [])]
    return "\n\n".join([*parts, f"*This page is the notebook `notebooks/{path.name}`.*\n"])


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"![What the code above draws](data:image/png;base64,{''.join(data['image/png'].split())})"
    text = "".join(output.get("text") or data.get("text/plain", "")).replace("\r", "").rstrip()
    return f"```text\n{text}\n```"
