"""The page's plots as files for a paper, drawn with matplotlib from the same numbers."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.report import PageContent
from rankingmatch.report.sections import thumbnails_of
from rankingmatch.report.sections.overview import FoldDifference
from rankingmatch.report.sections.training import PanelData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
PAIRS_IN_A_ROW = 4
NAMED_CLASSES = 20  # with more classes their names are left out

Run = Mapping[str, Any]  # what a section shows of it


def require_plotting() -> None:
    """`ConfigError` if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f"{setting('figures')} needs matplotlib: pip install 'rankingmatch[figures]'")


def draw_figures(content: PageContent, directory: Path) -> list[Path]:
    """Write every plot of a page as PNG and SVG into an existing directory; returns the files."""
    files = []
    for name, figure in _figures(content):
        for suffix in FORMATS:
            files.append(directory / f"{name}.{suffix}")
            figure.savefig(files[-1], dpi=150)
    return files


def _figures(content: PageContent) -> "Iterator[tuple[str, Figure]]":
    """Names and figures; where a section shows several runs, one plot for each."""
    sections, headers = content["sections"], content["runs"]
    for panel in sections["training"]:
        yield panel["key"], _figure([partial(_panel, panel=panel)])
    classes, embedding, pairs = (sections[key] for key in ("classes", "embedding", "pairs"))
    represented = [run for run in embedding if "representations" in run["points"]]
    kinds: list[tuple[str, list[Run], Callable[..., None], float]] = [
        ("confusion", classes, _confusion, 4.2),
        ("calibration", classes, _calibration, 3),
        ("map_logits", embedding, partial(_map, kind="logits"), 4),
        ("map_representations", represented, partial(_map, kind="representations"), 4),
        ("similarity_outputs", pairs, partial(_similarity, kind="outputs"), 3),
        ("similarity_representations", pairs, partial(_similarity, kind="representations"), 3),
    ]
    for name, runs, fill, side in kinds:
        names = [[escape(label) for label in headers[run["run"]]["classes"]] for run in runs]
        fills = [partial(fill, run=run, names=own) for run, own in zip(runs, names, strict=True)]
        if runs:
            yield name, _figure(fills, side, [headers[run["run"]]["name"] for run in runs])
    for run in pairs:
        if run["examples"]:
            images = thumbnails_of(content["sprites"][run["sprite"]])  # type: ignore[arg-type]
            number = "" if len(headers) == 1 else f"_{run['run']}"
            yield f"pairs{number}", _pairs(run, images, headers[run["run"]]["classes"])
    if differences := sections["overview"]["fold_differences"]:
        yield "differences", _figure([partial(_differences, rows=differences)])


def _figure(fills: "Sequence[Callable[[Axes], None]]", side: float = 3, names: Sequence[str] = ()) -> "Figure":
    """A figure with one plot for each function; of several runs, their names are added to the titles."""
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=((side + 1) * len(fills), side), layout="constrained")
    plots = figure.subplots(1, len(fills), squeeze=False)[0]
    for axes, fill in zip(plots, fills, strict=True):
        fill(axes)
    for axes, name in zip(plots, names if len(names) > 1 else (), strict=False):
        axes.set_title("\n".join(filter(None, [escape(name), axes.get_title()])), fontsize=9)
    return figure


def escape(text: str) -> str:
    """A name that matplotlib does not read as a formula."""
    return text.replace("\\", "\\\\").replace("$", r"\$")


def _pairs(run: Run, images: list[np.ndarray], classes: list[str]) -> "Figure":
    """The pairs of each class, as in the paper's Figure 4."""
    from matplotlib.figure import Figure

    lines = -(-len(run["examples"]) // PAIRS_IN_A_ROW)
    figure = Figure(figsize=(2.6 * PAIRS_IN_A_ROW, 1.9 * lines), layout="constrained")
    grid = figure.subplots(lines, 2 * PAIRS_IN_A_ROW, squeeze=False).reshape(-1, 2)
    for axes in grid.flat:
        axes.axis("off")
    for (left, right), pair in zip(grid, run["examples"], strict=False):
        for axes, index in zip((left, right), pair["thumbnails"], strict=True):
            axes.imshow(images[index].squeeze(), cmap="gray", vmin=0, vmax=255)
        left.set_title(escape(classes[pair["label"]]), fontsize=8, loc="left")
        right.set_title(f"{pair['outputs']:.2f}, {pair['representations']:.2f}", fontsize=8)
    figure.suptitle("Cosine similarity of outputs, and of representations", fontsize=9)
    return figure


def _panel(axes: "Axes", panel: PanelData) -> None:
    x, curves = panel["curves"][0]["x"], [np.array(curve["y"], float) for curve in panel["curves"]]  # None is NaN
    if panel["heat_map"]:
        left, right = (x[0], x[-1]) if len(x) > 1 else (x[0] - 0.5, x[0] + 0.5)  # one column needs a width
        image = axes.imshow(curves, aspect="auto", cmap="Blues", extent=(left, right, len(curves) - 0.5, -0.5))
        axes.figure.colorbar(image, ax=axes, label=panel["y_label"])
        axes.set_ylabel("class")
    else:
        for curve, y in zip(panel["curves"], curves, strict=True):
            marker = "o" if np.isfinite(y).sum() == 1 else None  # a line through one point is invisible
            axes.plot(curve["x"], y, label=escape(curve["name"]), linewidth=1.2, marker=marker)
        axes.set_ylabel(panel["y_label"])
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    axes.set_title(escape(panel["title"]), fontsize=10)
    axes.set_xlabel(panel["x_label"])


def _confusion(axes: "Axes", run: Run, names: list[str]) -> None:
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


def _calibration(axes: "Axes", run: Run, names: list[str]) -> None:
    bins = run["calibration"]
    axes.plot([0, 1], [0, 1], ":", color="gray", linewidth=1)
    axes.plot([one["confidence"] for one in bins], [one["accuracy"] for one in bins], "o-", markersize=4)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy")
    axes.grid(alpha=0.3)


def _map(axes: "Axes", run: Run, names: list[str], kind: str) -> None:
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


def _similarity(axes: "Axes", run: Run, names: list[str], kind: str) -> None:
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
