"""The page's plots as files for a paper, drawn with matplotlib from the same numbers."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.report.comparison import FoldDifference
from rankingmatch.report.curves import PanelData
from rankingmatch.report.page import PageContent
from rankingmatch.report.sections.pairs import PairsOfRun
from rankingmatch.report.thumbnails import SpriteData, thumbnails_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_figures", "require_plotting"]

FORMATS = ("png", "svg")
PAIRS_IN_A_ROW = 4
NAMED_CLASSES = 20  # with more classes their names are left out


def require_plotting() -> None:
    """Check that matplotlib is installed.

    Raises
    ------
    ConfigError
        If it is not; the message says how to install it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f"{setting('figures')} needs matplotlib: pip install 'rankingmatch[figures]'")


def draw_figures(content: PageContent, directory: Path) -> list[Path]:
    """Write every plot of a page as PNG and SVG.

    Parameters
    ----------
    content : PageContent
        From `rankingmatch.report.page_content`.
    directory : Path
        An existing directory.

    Returns
    -------
    list of Path
        The files.
    """
    sections = content["sections"]
    figures = _Figures(content, directory)
    for panel in sections["training"]["panels"]:
        figures.draw(panel["key"], partial(_panel, panel=panel))
    figures.draw_runs("confusion", sections["classes"]["runs"], _confusion, side=4.2)
    figures.draw_runs("calibration", sections["classes"]["runs"], _calibration)
    for kind in ("logits", "representations"):
        runs = [run for run in sections["embedding"]["runs"] if kind in run["points"]]
        figures.draw_runs(f"map_{kind}", runs, partial(_embedding, kind=kind), side=4)
    for kind in ("outputs", "representations"):
        figures.draw_runs(f"similarity_{kind}", sections["pairs"]["runs"], partial(_similarity, kind=kind))
    for run in sections["pairs"]["runs"]:
        figures.draw_pairs(run, content["sprites"][run["sprite"]])
    differences = sections["overview"]["fold_differences"]
    if differences:
        figures.draw("differences", partial(_differences, rows=differences))
    return figures.files


class _Figures:
    """Writes figures into a directory and remembers the files."""

    def __init__(self, content: PageContent, directory: Path) -> None:
        self.runs = content["runs"]
        self.directory = directory
        self.files: list[Path] = []

    def draw(self, name: str, *fill: "Callable[[Axes], None]", side: float = 3.0) -> None:
        """Write a figure with one plot for each function."""
        from matplotlib.figure import Figure

        figure: Figure = Figure(figsize=((side + 1) * len(fill), side), layout="constrained")
        for axes, fill_axes in zip(figure.subplots(1, len(fill), squeeze=False)[0], fill, strict=True):
            fill_axes(axes)
        self._save(figure, name)

    def draw_runs(
        self,
        name: str,
        shown: Sequence[Mapping[str, Any]],
        fill: "Callable[[Axes, Mapping[str, Any], list[str]], None]",
        side: float = 3.0,
    ) -> None:
        """Write a figure with one plot for each run of a section, titled if there are several."""

        def fill_run(axes: "Axes", run: Mapping[str, Any]) -> None:
            header = self.runs[run["run"]]
            fill(axes, run, [escape(name) for name in header["classes"]])
            if len(shown) > 1:
                title = axes.get_title()
                axes.set_title(escape(header["name"]) + (f"\n{title}" if title else ""), fontsize=9)

        if shown:
            self.draw(name, *(partial(fill_run, run=run) for run in shown), side=side)

    def draw_pairs(self, run: PairsOfRun, sprite: SpriteData | None) -> None:
        """Write the pairs of each class, as in the paper's Figure 4; of several runs, a figure for each."""
        from matplotlib.figure import Figure

        if not run["examples"] or sprite is None:
            return
        header, images, count = self.runs[run["run"]], thumbnails_of(sprite), len(run["examples"])
        figure = Figure(figsize=(2.6 * PAIRS_IN_A_ROW, 1.9 * -(-count // PAIRS_IN_A_ROW)), layout="constrained")
        grid = figure.subplots(-(-count // PAIRS_IN_A_ROW), 2 * PAIRS_IN_A_ROW, squeeze=False).reshape(-1, 2)
        for axes in grid.flat:
            axes.axis("off")
        for (left, right), pair in zip(grid, run["examples"], strict=False):
            for axes, index in zip((left, right), pair["thumbnails"], strict=True):
                axes.imshow(images[index].squeeze(), cmap="gray", vmin=0, vmax=255)
            left.set_title(escape(header["classes"][pair["label"]]), fontsize=8, loc="left")
            right.set_title(f"{pair['outputs']:.2f}, {pair['representations']:.2f}", fontsize=8)
        figure.suptitle("Cosine similarity of outputs, and of representations", fontsize=9)
        number = "" if len(self.runs) == 1 else f"_{run['run']}"
        self._save(figure, f"pairs{number}")

    def _save(self, figure: Any, name: str) -> None:
        for suffix in FORMATS:
            self.files.append(self.directory / f"{name}.{suffix}")
            figure.savefig(self.files[-1], dpi=150)


def escape(text: str) -> str:
    """A name that matplotlib does not read as a formula."""
    return text.replace("\\", "\\\\").replace("$", r"\$")


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], float)


def _panel(axes: "Axes", panel: PanelData) -> None:
    if panel["heat_map"]:
        shares = np.stack([_numbers(row) for row in panel["heat_map"]])
        x = panel["curves"][0]["x"]
        left, right = (x[0], x[-1]) if len(x) > 1 else (x[0] - 0.5, x[0] + 0.5)  # one column needs a width
        image = axes.imshow(shares, aspect="auto", cmap="Blues", extent=(left, right, len(shares) - 0.5, -0.5))
        axes.figure.colorbar(image, ax=axes, label=panel["y_label"])
        axes.set_ylabel("class")
    else:
        for curve in panel["curves"]:
            y = _numbers(curve["y"])
            marker = "o" if np.isfinite(y).sum() == 1 else None  # a line through one point is invisible
            axes.plot(curve["x"], y, label=escape(curve["name"]), linewidth=1.2, marker=marker)
        axes.set_ylabel(panel["y_label"])
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    axes.set_title(escape(panel["title"]), fontsize=10)
    axes.set_xlabel(panel["x_label"])


def _confusion(axes: "Axes", run: Mapping[str, Any], names: list[str]) -> None:
    counts = np.array(run["confusion"], float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    if len(counts) <= NAMED_CLASSES:
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        for (row, column), number in np.ndenumerate(counts):
            if number:
                color = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{number:.0f}", ha="center", va="center", fontsize=6, color=color)


def _calibration(axes: "Axes", run: Mapping[str, Any], _: list[str]) -> None:
    bins = run["calibration"]
    axes.plot([0, 1], [0, 1], ":", color="gray", linewidth=1)
    axes.plot([one["confidence"] for one in bins], [one["accuracy"] for one in bins], "o-", markersize=4)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy")
    axes.grid(alpha=0.3)


def _embedding(axes: "Axes", run: Mapping[str, Any], names: list[str], kind: str) -> None:
    x, y = np.array(run["points"][kind])
    truth = np.array(run["truth"])
    labels = np.where(truth >= 0, truth, np.array(run["predicted"]))
    for label in np.unique(labels):
        of_class = labels == label
        color = f"C{label}" if len(names) <= 10 else None
        axes.scatter(x[of_class], y[of_class], s=4, color=color, label=names[label], linewidths=0)
    axes.set_xticks([])
    axes.set_yticks([])
    if len(names) <= NAMED_CLASSES:
        axes.legend(fontsize=6, markerscale=3, loc="best")
    error = "" if run["error"] is None else f": error {run['error']:.2f}%"
    axes.set_title(f"{kind}{error} ({len(x):,} {run['subset']} images)", fontsize=9)


def _similarity(axes: "Axes", run: Mapping[str, Any], _: list[str], kind: str) -> None:
    histogram = run[kind]
    edges = np.linspace(-1, 1, len(histogram["same_class"]) + 1)
    for key, label in (("same_class", "same class"), ("other_class", "different classes")):
        axes.stairs(histogram[key], edges, fill=True, alpha=0.5, label=label)
    axes.set_xlabel(f"cosine similarity of {kind}")
    axes.set_ylabel("% of pairs")
    axes.legend(fontsize=7)


def _differences(axes: "Axes", rows: list[FoldDifference]) -> None:
    names = [escape(f"{row['method']} − {row['baseline']}\n{row['dataset']}, {row['labels']} labels") for row in rows]
    half_widths = [row["half_width"] or 0 for row in rows]
    axes.errorbar([row["mean"] for row in rows], range(len(rows)), xerr=half_widths, fmt="D")
    axes.set_yticks(range(len(rows)), names, fontsize=7)
    axes.axvline(0, color="gray", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("test error: difference in percentage points")
