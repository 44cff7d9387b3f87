"""Notes: what a reader must know about a run before reading the numbers."""

from typing import TypedDict

from rankingmatch.report.run_data import RunData, Status


class Note(TypedDict):
    """A note, and the runs it is about; no names if it is about all of them."""

    text: str
    status: str
    names: list[str]


def gather_notes(runs: list[RunData]) -> list[Note]:
    """Each note once, with the names of the runs it is about."""
    names: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for text in notes_of(run):
            names.setdefault((text, run.status.value), []).append(run.name)
    return [
        {"text": text, "status": status, "names": about if len(about) < len(runs) else []}
        for (text, status), about in names.items()
    ]


def _says_what_replaces_test(run: RunData) -> bool:
    """Whether one of the run's own notes says that there are no test images, and what is shown instead."""
    return run.evaluated is not None and run.evaluated.subset != "test"


def notes_of(run: RunData) -> list[str]:
    """How the run ended, and what cannot be shown."""
    notes = []
    if run.status is Status.DIVERGED:
        notes.append(
            f"Training stopped at step {run.diverged_at}: '{run.diverged_part}' was no longer finite (NaN). "
            "There is no final model."
        )
    elif run.status is Status.UNDER_WAY:
        notes.append(f"This run is not finished: {run.step:,} of {run.steps:,} steps so far.")
    if not run.history:
        notes.append("There is no evaluation yet, so there are no curves.")
    elif not any(row.get("test_error") is not None for row in run.history) and not _says_what_replaces_test(run):
        notes.append("There are no test labels, so there is no test error.")
    if run.history and not any("class_shares" in row for row in run.history):
        notes.append("This run was made by an earlier version, which did not record class shares and memory.")
    return [*notes, *run.notes]
