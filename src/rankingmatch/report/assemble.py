"""Runs → one page: what each section shows, as plain values, and the file that holds them all."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.report.audit import audit_section
from rankingmatch.report.classes import classes_section
from rankingmatch.report.comparison import (
    fold_differences,
    gain_over_supervised,
    in_detail,
    run_rows,
)
from rankingmatch.report.maps import maps_section
from rankingmatch.report.pairs import pairs_section
from rankingmatch.report.panels import class_share_panel, comparison_panels, training_panels
from rankingmatch.report.sheet import Sheet
from rankingmatch.report.subject import Outputs, Status, Subject

MOST_IN_DETAIL = 6  # runs of which outputs are shown
MAP_POINTS = {1: 2000, 2: 1500}  # points of each map, by the number of runs in detail
MAP_POINTS_OF_MANY = 1000
GALLERY = 1500  # thumbnails of unlabeled images, over all runs


def runs_in_detail(subjects: list[Subject]) -> list[int]:
    """The places of the runs whose outputs the page shows."""
    return in_detail(subjects, MOST_IN_DETAIL)


def page_content(subjects: list[Subject]) -> dict[str, Any]:
    """All that the page shows, as plain values."""
    detailed = runs_in_detail(subjects)
    sheets: dict[str, Sheet] = {}
    runs = []
    for place, subject in enumerate(subjects):
        shown = _details(subject, sheets, len(detailed)) if place in detailed else {}
        runs.append({**_about(subject), **shown, "gain": gain_over_supervised(subject, subjects)})
    several = len(subjects) > 1
    return {
        "made": datetime.date.today().isoformat(),
        "title": _title(subjects),
        "notes": _gathered_notes(subjects),
        "runs": runs,
        "panels": _json(comparison_panels(subjects) if several else training_panels(subjects[0])),
        "sharePanels": _share_panels([subjects[place] for place in detailed]) if several else [],
        "comparison": {"rows": run_rows(subjects), "differences": fold_differences(subjects)} if several else None,
        "sheets": {key: sheet.to_json() for key, sheet in sheets.items()},
    }


def _title(subjects: list[Subject]) -> str:
    first = subjects[0]
    if len(subjects) == 1:
        return f"{first.method} on {first.dataset}"
    datasets = list(dict.fromkeys(subject.dataset for subject in subjects))
    return f"{len(subjects)} runs on {', '.join(datasets)}"


def _json(panels: list[Any]) -> list[dict[str, Any]]:
    return [panel.to_json() for panel in panels]


def _share_panels(subjects: list[Subject]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    for subject in subjects:
        panel = class_share_panel(subject).to_json()
        if any(value is not None for line in panel["lines"] for value in line["y"]):
            panels.append(
                {**panel, "key": f"class_shares_{len(panels)}", "title": f"Share of each class: {subject.name}"}
            )
    return panels


def _about(subject: Subject) -> dict[str, Any]:
    last = subject.history[-1] if subject.history else {}
    return {
        "name": subject.name,
        "dataset": subject.dataset,
        "method": subject.method,
        "labels": subject.labels,
        "seed": subject.seed,
        "classes": list(subject.classes),
        "status": subject.status.value,
        "step": subject.step,
        "steps": subject.steps,
        "testError": subject.test_error,
        "valError": subject.val_error,
        "seconds": subject.seconds,
        "confident": last.get("confident"),
        "purity": last.get("purity"),
        "unlabeledTotal": subject.unlabeled_total,
        "command": subject.command,
        "environment": subject.environment,
        "settings": subject.settings,
        "weights": subject.weights,
        "place": subject.place,
        "detail": False,
    }


def _gathered_notes(subjects: list[Subject]) -> list[dict[str, Any]]:
    """Each note once, with the names of the runs it is about; without names if they are all."""
    about: dict[tuple[str, str], list[str]] = {}
    for subject in subjects:
        for note in notes_of(subject):
            about.setdefault((note, subject.status.value), []).append(subject.name)
    return [
        {"text": note, "status": status, "names": names if len(names) < len(subjects) else []}
        for (note, status), names in about.items()
    ]


def notes_of(subject: Subject) -> list[str]:
    """What a reader must know before reading on: how the run ended, and what cannot be shown."""
    notes = []
    if subject.status is Status.DIVERGED:
        notes.append(
            f"Training stopped at step {subject.diverged_at}: '{subject.diverged_part}' was no longer finite (NaN). "
            "There is no final model."
        )
    elif subject.status is Status.UNDER_WAY:
        notes.append(f"This run is not finished: {subject.step:,} of {subject.steps:,} steps so far.")
    if not subject.history:
        notes.append("There is no evaluation yet, so there are no curves.")
    elif not any(line.get("test_error") is not None for line in subject.history):
        notes.append("There are no test labels: no test error can be given.")
    if subject.history and not any("class_shares" in line for line in subject.history):
        notes.append("An earlier version made this run: the share of each class and the memory were not recorded.")
    return [*notes, *subject.notes]


def _details(subject: Subject, sheets: dict[str, Sheet], runs: int) -> dict[str, Any]:
    """The sections that need outputs."""
    shown: dict[str, Any] = {"detail": True}
    if subject.judged is not None:
        key = _sheet_key(subject, subject.judged)
        sheet = sheets.setdefault(key, Sheet())
        shown |= {
            "sheet": key,
            "part": subject.judged.part,
            "confusion": classes_section(subject.judged, sheet),
            "maps": maps_section(subject.judged, sheet, MAP_POINTS.get(runs, MAP_POINTS_OF_MANY)),
            "pairs": pairs_section(subject.judged, sheet),
        }
    if subject.unlabeled is not None:
        key = _sheet_key(subject, subject.unlabeled)
        audit = audit_section(
            subject.unlabeled,
            sheets.setdefault(key, Sheet()),
            subject.unlabeled_total,
            subject.threshold,
            GALLERY // runs,
        )
        shown |= {"auditSheet": key, "audit": audit}
    return shown


def _sheet_key(subject: Subject, outputs: Outputs) -> str:
    """Runs on the same images share thumbnails."""
    size = "×".join(map(str, outputs.images.shape[1:]))
    return f"{subject.dataset} {outputs.part} {size}"


def json_in_html(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False, default=_plain)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no plain value")


def render_page(content: dict[str, Any]) -> str:
    """The page as HTML: template, style, scripts, plotting library and content in one text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("rankingmatch.report", "page"), autoescape=True, undefined=StrictUndefined
    )
    place = Path(__file__).parent / "page"
    script = "\n".join((place / name).read_text() for name in ("core.js", "plots.js", "sections.js", "audit.js"))
    return environment.get_template("page.html").render(
        content=content,
        content_json=Markup(json_in_html(content)),
        plotly=Markup(get_plotlyjs()),
        style=Markup((place / "page.css").read_text()),
        script=Markup(script),
    )
