"""Self-contained HTML reports of runs, from plain values and arrays; `figures` draws the same for a paper. No torch."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from rankingmatch.report.run_data import Predictions, RunData, Status
from rankingmatch.report.sections import ReportInput, Section, SpriteData, load_sections

__all__ = [
    "PageContent",
    "Predictions",
    "ReportInput",
    "RunData",
    "Section",
    "Status",
    "page_content",
    "render_page",
    "runs_in_detail",
]

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
    """Everything that a page shows, as plain values."""

    created: str  # the day
    title: str
    runs: list[RunHeader]
    sections: dict[str, Any]  # what each section shows, by its key
    sprites: dict[str, SpriteData | None]  # thumbnails by the keys that sections use; None if there are none


def runs_in_detail(runs: list[RunData]) -> list[int]:
    """The runs whose predictions a page shows: the first fold of each dataset, method and number of labels, up to six.

    Their predictions are not needed yet.
    """
    groups = [run.group for run in runs]
    return [groups.index(group) for group in dict.fromkeys(groups)][:MOST_DETAILED_RUNS]


def page_content(
    runs: list[RunData],
    points: int | None = None,
    progress: Callable[[str, int, int | None], None] = lambda task, done, total: None,
) -> PageContent:
    """The content of a page about one or more runs, with predictions for those that `runs_in_detail` chooses.

    A map has at most so many points: by default 2000, and fewer for several runs, because t-SNE takes long. `progress`
    is called with a task, how much of it is done, and how much it is.
    """
    report = ReportInput(runs, runs_in_detail(runs), {}, points)
    sections: dict[str, Any] = {}
    known = load_sections()
    for done, section in enumerate(known):
        progress("writing the report", done, len(known))
        sections[section.key] = section.build(report)
    progress("writing the report", len(known), len(known))
    datasets = ", ".join(dict.fromkeys(run.dataset for run in runs))
    return {
        "created": datetime.date.today().isoformat(),
        "title": f"{runs[0].method if len(runs) == 1 else f'{len(runs)} runs'} on {datasets}",
        "runs": [
            {
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
            for run in runs
        ],
        "sections": sections,
        "sprites": {key: sprite.to_data() for key, sprite in report.sprites.items()},
    }


def render_page(content: PageContent) -> str:
    """A page as an HTML document with style, scripts, Plotly, thumbnails and content inside; it needs no network."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(loader=PackageLoader(__name__, "page"), autoescape=True, undefined=StrictUndefined)
    sections = load_sections()
    # Each section's script is in a block, so that their names cannot clash.
    blocks = ["{\n" + (PAGE_FILES / "sections" / f"{section.key}.js").read_text() + "}" for section in sections]
    scripts = [*((PAGE_FILES / name).read_text() for name in SHARED_SCRIPTS), *blocks, "start();"]
    return environment.get_template("page.html").render(
        content=content,
        sections=sections,
        content_json=Markup(json_in_html(content)),
        plotly=Markup(get_plotlyjs()),
        style=Markup((PAGE_FILES / "page.css").read_text()),
        script=Markup("\n".join(scripts)),
    )


def json_in_html(value: Any) -> str:
    """JSON that cannot close the script element it is in; numbers may be numpy's."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=np.generic.item)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
