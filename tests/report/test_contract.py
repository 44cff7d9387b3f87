"""A section's Python module and its JavaScript module agree on what passes between them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from contracts import mismatches, typed_dicts, typedefs
from synthetic_runs import make_history, make_predictions, make_run, without_truth
from toy_section import page_with_toy_section

from rankingmatch.report import PAGE_FILES, SHARED_SCRIPTS, PageContent, Section, Status, page_content
from rankingmatch.report.sections import SECTION_NAMES, load_sections
from rankingmatch.report.sections.overview import Note

SECTIONS = load_sections()
SHARED = typedefs("\n".join((PAGE_FILES / name).read_text() for name in SHARED_SCRIPTS))
MEASURED = np.stack([np.arange(1, 9), np.full(8, 0.01), np.full(8, 2**21)], 1)
PAGES: dict[str, list[Any]] = {
    "finished": [make_run(step_costs=MEASURED)],
    "many classes": [make_run(classes=30)],
    "under way, nothing yet": [make_run(status=Status.UNDER_WAY, history=[], evaluated=None, unlabeled=None)],
    "diverged": [make_run(status=Status.DIVERGED, diverged_at=7, diverged_part="total", evaluated=None)],
    "no test images": [make_run(test_error=None, val_error=None, seconds=None, threshold=None)],
    "no labels": [make_run(evaluated=without_truth(make_predictions()), history=make_history(test_error=None))],
    "no representations": [make_run(evaluated=replace(make_predictions(), features=None))],
    "folds": [
        make_run(name=f"{one} {seed}", method=one, seed=seed) for one in ("supervised", "vat") for seed in (0, 1)
    ],
}


def contract(section: Section) -> Any:
    return get_type_hints(section.build)["return"]


@pytest.mark.parametrize("case", PAGES)
def test_every_section_builds_what_its_contract_says(case: str) -> None:
    content = page_content(PAGES[case])
    assert mismatches(content, PageContent) == []
    for section in SECTIONS:
        assert mismatches(content["sections"][section.key], contract(section), section.key) == []


@pytest.mark.parametrize("section", SECTIONS, ids=SECTION_NAMES)
def test_the_javascript_module_documents_the_same_contract(section: Section) -> None:
    own = typedefs((PAGE_FILES / "sections" / f"{section.key}.js").read_text())
    built = typed_dicts(contract(section))
    assert {**own, **{name: SHARED[name] for name in built if name in SHARED}} == built


def test_the_shared_scripts_document_the_page_and_every_module_of_a_section_has_its_counterpart() -> None:
    page = typed_dicts(PageContent)
    assert {name: SHARED.get(name) for name in page} == page
    for directory, suffix in (((PAGE_FILES.parent / "sections"), "py"), (PAGE_FILES / "sections", "js")):
        assert {path.stem for path in directory.glob(f"[!_]*.{suffix}")} == {section.key for section in SECTIONS}


def test_the_checker_finds_what_does_not_fit() -> None:
    note = {"text": "", "status": "", "names": ["a"]}
    cases: list[tuple[Any, Any, list[str]]] = [
        ({**note, "text": 1}, Note, ["value.text: 1 is not <class 'str'>"]),
        ({**note, "more": 1}, Note, ["value: keys differ: ['more']"]),
        ({**note, "names": ["a", None]}, Note, ["value.names[1]: None is not <class 'str'>"]),
        (True, int, ["value: True is not int"]),
        ("1", float | None, ["value: '1' is not float | None"]),
        ((1, 2, 3), tuple[int, int], ["value: 3 items instead of 2"]),
        ([[1.0, None]], list[list[float | None]], []),
        ({"a": "b"}, dict[str, float], ["value['a']: 'b' is not float"]),
        (np.float64(1), int, ["value: np.float64(1.0) is not int"]),
    ]
    for value, kind, expected in cases:
        assert mismatches(value, kind) == expected


def test_a_new_section_is_two_files_and_a_line(tmp_path: Path) -> None:
    page = page_with_toy_section(tmp_path).read_text()
    tabs = [page.index(f'aria-controls="{key}"') for key in ("overview", "training", "toy", "classes")]
    assert tabs == sorted(tabs)
    assert '<section id="toy"' in page
    assert '"toy":{"names":["first run"]}' in page
