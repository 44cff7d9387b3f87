"""Pages of the site that are no files of docs/: those of the root, of the examples, and of the modules."""

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
AS_THEY_ARE = ("CITATION.cff", "LICENSE")
LINK = re.compile(r"(?<=\]\()(?!https?:)[^)#]+")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out of the nav what is not there."""
    config.nav = _existing(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the nav that are no files of docs/."""
    for path in filter(lambda path: files.get_file_from_path(path) is None, _paths(config.nav)):
        files.append(File.generated(config, path, content=_content(path)))
    for name in AS_THEY_ARE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links that hold in the repository, between the root and docs/, hold on the site."""
    return LINK.sub(lambda link: _on_site(link[0]), markdown)


def _paths(nav: Any) -> list[str]:
    """The pages of a nav, in order."""
    if isinstance(nav, str):
        return [nav]
    return [path for part in (nav.values() if isinstance(nav, dict) else nav) for path in _paths(part)]


def _existing(nav: Any) -> Any:
    """A nav without the pages that nobody has written yet."""
    if isinstance(nav, dict):
        return {title: _existing(part) for title, part in nav.items()}
    return nav if isinstance(nav, str) else [_existing(part) for part in nav if any(map(_exists, _paths(part)))]


def _exists(path: str) -> bool:
    roots = {page: name for name, page in PAGES.items()}
    if path in roots:
        return (ROOT / roots[path]).exists()
    return path.startswith("api/") or path == "examples.md" or (ROOT / "docs" / path).exists()


def _content(path: str) -> str:
    if path.startswith("api/"):
        return f"# {Path(path).stem}\n\n::: rankingmatch.{Path(path).stem}\n"
    if path == "examples.md":
        return _examples()
    (name,) = (name for name, page in PAGES.items() if page == path)
    return (ROOT / name).read_text()


def _on_site(target: str) -> str:
    """Where a link of the repository leads on the site, whose pages are all at one level but for the reference."""
    target = target.removeprefix("../").removeprefix("docs/")
    return "examples.md" if target.startswith("examples/") else PAGES.get(target, target)


def _examples() -> str:
    """Every script of examples/ with the sentence that opens it."""
    text = "# Examples\n\nScripts of the folder `examples/`; the tests run each of them.\n"
    for script in sorted((ROOT / "examples").glob("*.py")):
        source = script.read_text()
        text += f"\n## {script.stem}\n\n{ast.get_docstring(ast.parse(source))}\n\n```python\n{source}```\n"
    return text
