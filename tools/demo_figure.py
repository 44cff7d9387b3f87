"""Draw docs/images/demo.svg from the two runs of `make demo`: `python tools/demo_figure.py runs/demo`."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from rankingmatch.runs.config import plan_of
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import load_split

OUT = Path(__file__).parents[1] / "docs/images/demo.svg"
COLORS = {"supervised": "#9aa3ad", "rankingmatch-bm": "#c2410c"}
LABELS = {"supervised": "labeled images only", "rankingmatch-bm": "RankingMatch: with unlabeled images"}


def draw_labeled(axes: Axes, run: Run) -> None:
    """Draw the labeled digits, one class per column."""
    split = load_split(plan_of(run.config()))
    axes.set_title(f"{len(split.labeled_rows)} labeled images …", fontsize=11)
    axes.axis("off")
    for column in range(len(split.classes)):
        rows = [row for row in split.labeled_rows if split.labels[row] == column]
        for line, row in enumerate(rows):
            inset = axes.inset_axes((column / 10, 1 - (line + 1) / 4, 0.092, 0.23))
            inset.imshow(split.images[row, :, :, 0], cmap="gray_r")
            inset.axis("off")


def draw_errors(axes: Axes, runs: dict[str, Run]) -> None:
    """Draw the test error during training."""
    unlabeled = len(load_split(plan_of(runs["supervised"].config())).unlabeled_rows)
    axes.set_title(f"… and {unlabeled:,} unlabeled ones", fontsize=11)
    for method, run in runs.items():
        history = run.history()
        steps, errors = [line["step"] for line in history], [line["test_error"] for line in history]
        axes.plot(steps, errors, color=COLORS[method], linewidth=2)
        text = f"{LABELS[method]}: {errors[-1]:.1f}%"
        above = max(errors[len(errors) // 5 :])  # above the right end of the curve
        axes.text(steps[-1], above + 0.5, text, ha="right", color=COLORS[method])
    axes.set(xlabel="training steps", ylabel="test error, %", ylim=(0, 20))
    axes.spines[["top", "right"]].set_visible(False)


def main(directory: Path) -> None:
    """Draw both halves."""
    runs = {method: Run(directory / f"digits-40-{method}-0") for method in COLORS}
    plt.rcParams["svg.hashsalt"] = "rankingmatch"  # the same figure gives the same file
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(1.1, 1.3), layout="constrained")
    draw_labeled(left, runs["supervised"])
    draw_errors(right, runs)
    figure.savefig(OUT, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
