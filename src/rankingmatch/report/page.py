"""The page: the content of all sections as plain values, and the HTML file that holds it."""

import datetime
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from rankingmatch.report.comparison import first_folds
from rankingmatch.report.run_data import RunData
from rankingmatch.report.section import ReportInput
from rankingmatch.report.sections import load_sections
from rankingmatch.report.thumbnails import SpriteData

__all__ = ["PageContent", "page_content", "render_page", "runs_in_detail"]

MOST_DETAILED_RUNS = 6
PAGE_FILES = Path(__file__).parent / "page"
SHARED_SCRIPTS = ("core.js", "plots.js", "widgets.js")


class RunHeader(TypedDict):
    """What every section may use of a run."""

    name: str
    directory: str
    dataset: str
    method: str
    labels: int
    unlabeled: int
    seed: int
    classes: list[str]
    status: str


class PageContent(TypedDict):
    """Everything that a page shows, as plain values.

    Attributes
    ----------
    created : str
        Date of the report.
    title : str
        Title of the page.
    runs : list of RunHeader
        Name, dataset, method, labels, classes and status of each run.
    sections : dict
        What each section shows, by the section's key.
    sprites : dict
        Thumbnails, by the keys that the sections use; None for a sprite without thumbnails.
    """

    created: str
    title: str
    runs: list[RunHeader]
    sections: dict[str, Mapping[str, Any]]
    sprites: dict[str, SpriteData | None]


def runs_in_detail(runs: list[RunData]) -> list[int]:
    """Choose the runs whose predictions the page shows.

    Parameters
    ----------
    runs : list of RunData
        The runs on the page; their predictions are not needed yet.

    Returns
    -------
    list of int
        Indices of the first fold of each dataset, method and number of labels, at most six.
    """
    return first_folds(runs, MOST_DETAILED_RUNS)


def page_content(
    runs: list[RunData],
    points: int | None = None,
    progress: Callable[[str, int, int | None], None] = lambda task, done, total: None,
) -> PageContent:
    """Build the content of every section.

    Parameters
    ----------
    runs : list of RunData
        The runs on the page, at least one, with predictions for those that `runs_in_detail` chooses.
    points : int, optional
        Most points of a map; by default 2000, and fewer for several runs, because t-SNE takes long.
    progress : callable
        Called with a task, how much of it is done, and how much it is.

    Returns
    -------
    PageContent
        Plain values, for `render_page` and `rankingmatch.report.figures.draw_figures`.
    """
    report = ReportInput(runs, runs_in_detail(runs), {}, points)
    sections: dict[str, Mapping[str, Any]] = {}
    known = load_sections()
    for done, section in enumerate(known):
        progress("writing the report", done, len(known))
        sections[section.key] = section.build(report)
    progress("writing the report", len(known), len(known))
    return {
        "created": datetime.date.today().isoformat(),
        "title": _title(runs),
        "runs": [_header(run) for run in runs],
        "sections": sections,
        "sprites": {key: sprite.to_data() for key, sprite in report.sprites.items()},
    }


def _title(runs: list[RunData]) -> str:
    if len(runs) == 1:
        return f"{runs[0].method} on {runs[0].dataset}"
    datasets = dict.fromkeys(run.dataset for run in runs)
    return f"{len(runs)} runs on {', '.join(datasets)}"


def _header(run: RunData) -> RunHeader:
    return {
        "name": run.name,
        "directory": run.directory,
        "dataset": run.dataset,
        "method": run.method,
        "labels": run.labels,
        "unlabeled": run.unlabeled_total,
        "seed": run.seed,
        "classes": list(run.classes),
        "status": run.status.value,
    }


def json_in_html(value: Any) -> str:
    """JSON that cannot close the script element it is in."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False, default=_plain_number)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a plain value")


def page_script(keys: list[str]) -> str:
    """The page's JavaScript: shared scripts, then each section's in a block, so that their names cannot clash."""
    shared = [(PAGE_FILES / name).read_text() for name in SHARED_SCRIPTS]
    sections = ["{\n" + (PAGE_FILES / "sections" / f"{key}.js").read_text() + "}" for key in keys]
    return "\n".join([*shared, *sections, "start();"])


def render_page(content: PageContent) -> str:
    """Render a page as a self-contained HTML document.

    Parameters
    ----------
    content : PageContent
        From `page_content`.

    Returns
    -------
    str
        HTML with style, scripts, plotting library, thumbnails and content inside; it needs no network.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("rankingmatch.report", "page"), autoescape=True, undefined=StrictUndefined
    )
    sections = load_sections()
    return environment.get_template("page.html").render(
        content=content,
        sections=sections,
        content_json=Markup(json_in_html(content)),
        plotly=Markup(get_plotlyjs()),
        style=Markup((PAGE_FILES / "page.css").read_text()),
        script=Markup(page_script([section.key for section in sections])),
    )
