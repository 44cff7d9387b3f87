"""What a section of the page is."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rankingmatch.report.run_data import Predictions, RunData
from rankingmatch.report.thumbnails import Sprite

__all__ = ["ReportInput", "Section"]


@dataclass(frozen=True)
class ReportInput:
    """What a section is built from.

    Attributes
    ----------
    runs : list of RunData
        The runs on the page.
    detailed : list of int
        Indices of the runs whose predictions are shown.
    sprites : dict of str to Sprite
        Thumbnails of the page. A section adds the images it shows; sections that show the same image share it.
    points : int, optional
        Most points of a map; by default it depends on the number of runs.
    """

    runs: list[RunData]
    detailed: list[int]
    sprites: dict[str, Sprite]
    points: int | None = None

    def detailed_runs(self) -> Iterator[tuple[int, RunData]]:
        """Index and data of each run whose predictions are shown."""
        return ((index, self.runs[index]) for index in self.detailed)

    def sprite(self, run: RunData, predictions: Predictions) -> tuple[str, Sprite]:
        """Key and sprite for thumbnails of these images; runs on the same images share one."""
        size = "×".join(map(str, predictions.images.shape[1:]))
        key = f"{run.dataset} {predictions.subset} {size}"
        return key, self.sprites.setdefault(key, Sprite())


@dataclass(frozen=True)
class Section:
    """A section of the page: a tab, and what its JavaScript module is given to draw.

    Attributes
    ----------
    key : str
        Name of the Python module in ``report/sections``, of the JavaScript module in ``report/page/sections``, and id
        of the section on the page.
    title : str
        Title of the tab.
    build : callable
        Turns a `ReportInput` into what the JavaScript module is given. Its return annotation is a TypedDict: the
        contract between the two modules, which the JavaScript module repeats as a JSDoc typedef.
    """

    key: str
    title: str
    build: Callable[[ReportInput], Mapping[str, object]]
