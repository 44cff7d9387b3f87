"""The sections of the page, one module each. To add one, see "Add a section" in docs/report.md."""

from importlib import import_module

from rankingmatch.report.section import Section

# Modules of this package, each with a `SECTION`, in the order of the tabs.
SECTION_NAMES = [
    "overview",
    "training",
    "classes",
    "embedding",
    "pairs",
    "pseudo_labels",
]


def load_sections() -> list[Section]:
    """The sections of the page, in the order of the tabs."""
    return [import_module(f"{__name__}.{name}").SECTION for name in SECTION_NAMES]
