"""The page's figures as files for a paper, drawn with matplotlib from the same numbers."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankingmatch.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")
NAMED_CLASSES = 20  # with more classes their names are left out


def require_plotting() -> None:
    """Say how to get matplotlib if it is not there."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--figures needs matplotlib: pip install 'rankingmatch[figures]'")


def draw_figures(content: dict[str, Any], place: Path) -> list[Path]:
    """Write every figure of a page into a folder; returns the files."""
    files = []
    for panel in [*content["panels"], *content["sharePanels"]]:
        files += _draw(place, panel["key"], 1, lambda axes, panel=panel: _panel(axes[0], panel))
    runs = [run for run in content["runs"] if run["detail"]]
    judged = [run for run in runs if run.get("confusion")]
    if judged:
        files += _draw(place, "confusion", len(judged), lambda axes: _each(_confusion, axes, judged), 4.2)
        files += _draw(place, "calibration", len(judged), lambda axes: _each(_calibration, axes, judged))
    mapped = [run for run in runs if run.get("maps")]
    for which in ("logits", "representations"):
        here = [run for run in mapped if which in run["maps"]["maps"]]
        if here:
            files += _draw(place, f"map_{which}", len(here), lambda axes: _maps(axes, here, which), 4)  # noqa: B023
    paired = [run for run in runs if run.get("pairs")]
    for which in ("outputs", "representations"):
        if paired:
            files += _draw(place, f"similarity_{which}", len(paired), lambda axes: _pairs(axes, paired, which))  # noqa: B023
    differences = (content["comparison"] or {}).get("differences")
    if differences:
        files += _draw(place, "differences", 1, lambda axes: _differences(axes[0], differences))
    return files


def _draw(place: Path, name: str, count: int, fill: Any, side: float = 3.0) -> list[Path]:
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=((side + 1) * count, side), layout="constrained")
    fill(list(figure.subplots(1, count, squeeze=False)[0]))
    files = [place / f"{name}.{ending}" for ending in FORMATS]
    for file in files:
        figure.savefig(file, dpi=150)
    return files


def plain(text: str) -> str:
    """A name that matplotlib does not read as a formula."""
    return text.replace("\\", "\\\\").replace("$", r"\$")


def _each(draw: Any, axes: "list[Axes]", runs: list[dict[str, Any]]) -> None:
    for one, run in zip(axes, runs, strict=True):
        draw(one, run)
        if len(runs) > 1:
            one.set_title(plain(run["name"]), fontsize=9)


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], float)


def _panel(axes: "Axes", panel: dict[str, Any]) -> None:
    if panel["grid"]:
        grid = np.stack([_numbers(row) for row in panel["grid"]])
        x = panel["lines"][0]["x"]
        image = axes.imshow(grid, aspect="auto", cmap="Blues", extent=(x[0], x[-1], len(grid) - 0.5, -0.5))
        axes.figure.colorbar(image, ax=axes, label=panel["unit"])
        axes.set_ylabel("class")
    else:
        for line in panel["lines"]:
            axes.plot(line["x"], _numbers(line["y"]), label=plain(line["name"]), linewidth=1.2)
        axes.set_ylabel(panel["unit"])
        axes.grid(alpha=0.3)
        if len(panel["lines"]) > 1:
            axes.legend(fontsize=7)
    axes.set_title(plain(panel["title"]), fontsize=10)
    axes.set_xlabel(panel["per"])


def _confusion(axes: "Axes", run: dict[str, Any]) -> None:
    counts = np.array(run["confusion"]["confusion"], float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    if len(counts) <= NAMED_CLASSES:
        names = [plain(name) for name in run["classes"]]
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        for (row, column), number in np.ndenumerate(counts):
            if number:
                ink = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{number:.0f}", ha="center", va="center", fontsize=6, color=ink)


def _calibration(axes: "Axes", run: dict[str, Any]) -> None:
    bins = run["confusion"]["calibration"]
    axes.plot([0, 1], [0, 1], ":", color="gray", linewidth=1)
    axes.plot([one["confidence"] for one in bins], [one["accuracy"] for one in bins], "o-", markersize=4)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy")
    axes.grid(alpha=0.3)


def _maps(axes: "list[Axes]", runs: list[dict[str, Any]], which: str) -> None:
    for one, run in zip(axes, runs, strict=True):
        maps = run["maps"]
        x, y = np.array(maps["maps"][which])
        truth = np.array(maps["truth"])
        labels = np.where(truth >= 0, truth, np.array(maps["predicted"]))
        few = len(run["classes"]) <= NAMED_CLASSES
        for label in np.unique(labels):
            here = labels == label
            colour = f"C{label}" if len(run["classes"]) <= 10 else None
            one.scatter(x[here], y[here], s=4, color=colour, label=plain(run["classes"][label]), linewidths=0)
        one.set_xticks([])
        one.set_yticks([])
        if few:
            one.legend(fontsize=6, markerscale=3, loc="best")
        one.set_title(plain(run["name"]) if len(runs) > 1 else which, fontsize=9)


def _pairs(axes: "list[Axes]", runs: list[dict[str, Any]], which: str) -> None:
    for one, run in zip(axes, runs, strict=True):
        values = run["pairs"][which]
        edges = np.linspace(-1, 1, len(values["same"]) + 1)
        for name, words in (("same", "pairs of a class"), ("other", "pairs of two classes")):
            one.stairs(values[name], edges, fill=True, alpha=0.5, label=words)
        one.set_xlabel(f"cosine similarity of {which}")
        one.set_ylabel("% of pairs")
        one.legend(fontsize=7)
        if len(runs) > 1:
            one.set_title(plain(run["name"]), fontsize=9)


def _differences(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    names = [plain(f"{row['method']} − {row['baseline']}\n{row['dataset']}, {row['labels']} labels") for row in rows]
    axes.errorbar([row["mean"] for row in rows], range(len(rows)), xerr=[row["half"] or 0 for row in rows], fmt="D")
    axes.set_yticks(range(len(rows)), names, fontsize=7)
    axes.axvline(0, color="gray", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("test error: difference in points")
