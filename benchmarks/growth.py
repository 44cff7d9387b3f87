"""How cost grows with the number of ranked rows, classes, images in the pool, with the image size, and with threads.

`python tools/results.py` draws the figure of docs/performance.md from what is kept.

    python benchmarks/growth.py --keep docs/results
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from augmentation import POLICY, our_pair, photographs_of
from measuring import Rows, Work, add_keep, in_turns, markdown, report, wall_seconds
from ranking import forward_and_backward, logits_and_labels
from rankingmatch.core.randomness import Purpose
from rankingmatch.data import rows_of_step
from rankingmatch.losses import batch_all_triplet, batch_hard_triplet, batch_mean_triplet, contrastive
from steps import Pass, take_passes, wide_case

LOSSES = (batch_all_triplet, batch_hard_triplet, batch_mean_triplet, contrastive)
Points = dict[str, list[float]]


def least(works: dict[str, Work], rounds: int = 7, clock: Callable[[Work], float] | None = None) -> dict[str, float]:
    """The minimum milliseconds of each function: the measurement that other programs disturbed least."""
    times = in_turns(works, rounds, clock) if clock else in_turns(works, rounds)
    return {name: 1000 * min(values) for name, values in times.items()}


def over(sizes: list[int], works: Callable[[int], dict[str, Work]], rounds: int = 7) -> Points:
    """Milliseconds of each function at each size."""
    points: Points = {}
    for size in sizes:
        for name, value in least(works(size), rounds).items():
            points.setdefault(name, []).append(value)
    return points


def ranking_works(n: int, classes: int) -> dict[str, Work]:
    """Each loss, forward and backward."""
    logits, labels = logits_and_labels(n, classes)
    return {loss.__name__: partial(forward_and_backward, loss, logits, labels) for loss in LOSSES}


def pool_works(size: int) -> dict[str, Work]:
    """Selecting the rows of a step from a pool of this size."""
    pool, step = np.arange(size), iter(range(10**9))

    def rows() -> None:
        rows_of_step(pool, 448, 0, Purpose.UNLABELED_ROWS, next(step) % max(1, size // 448))

    return {"rows of a step": rows}


def view_works(side: int) -> dict[str, Work]:
    """Weak and strong views of 64 images."""
    return {"64 pairs of views": partial(our_pair, photographs_of(64, side), POLICY, torch.Generator().manual_seed(0))}


def over_threads(threads: list[int]) -> Points:
    """A pass of wrn-28-2 with its backward: wall time."""
    case = wide_case(batch_size=4)
    work = partial(take_passes, case.state.model, [Pass(60, True, False, True)], case.images)
    points: Points = {"60 images, wrn-28-2": []}
    for count in threads:
        torch.set_num_threads(count)
        points["60 images, wrn-28-2"].append(least({"": work}, 3, wall_seconds)[""])
    torch.set_num_threads(1)
    return points


def table(rows: Rows) -> str:
    """A line for each curve."""
    lines = []
    for row in rows:
        points = zip(row["sizes"], row["milliseconds"], strict=True)
        lines.append((row["over"], row["what"], ", ".join(f"{size:,}: {value:.3g} ms" for size, value in points)))
    return markdown(("over", "what", "measured"), lines)


def draw(rows: Rows, path: Path) -> None:
    """Draw a panel for each quantity that grows."""
    mpl.rcParams.update({"svg.hashsalt": "rankingmatch", "font.size": 8})
    panels: dict[str, Rows] = {}
    for row in rows:
        panels.setdefault(row["over"], []).append(row)
    figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        draw_panel(axis, title, curves)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_panel(axis: Axes, title: str, curves: Rows) -> None:
    """Draw milliseconds against a quantity that grows."""
    sizes = curves[0]["sizes"]
    for curve in curves:
        axis.loglog(sizes, curve["milliseconds"], marker="o", markersize=3, label=curve["what"])
    every = [value for curve in curves for value in curve["milliseconds"]]
    if max(every) < 10 * min(every):  # a logarithmic axis needs a power of ten
        axis.set(yscale="linear", ylim=(0, None))
    else:
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel=title, ylabel="ms")
    axis.set_xticks(sizes, [f"{size:,}" if size < 10**6 else f"{size // 10**6} m." for size in sizes])
    axis.set_xticks([], minor=True)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_keep(parser)
    given = parser.parse_args()
    torch.set_num_threads(1)
    counts, classes = [56, 112, 224, 448, 896], [2, 10, 50, 200]
    pools, sides, threads = [10**3, 10**4, 10**5, 10**6, 10**7], [16, 32, 64, 96], [1, 2]
    panels = [
        ("rows ranked, 10 classes", counts, over(counts, partial(ranking_works, classes=10), 5)),
        ("classes, 448 rows", classes, over(classes, partial(ranking_works, 448), 5)),
        ("images in the pool", pools, over(pools, pool_works, 3)),
        ("side of an image", sides, over(sides, view_works)),
        ("threads", threads, over_threads(threads)),
    ]
    rows: Rows = [
        {"over": title, "what": name, "sizes": sizes, "milliseconds": values}
        for title, sizes, points in panels
        for name, values in points.items()
    ]
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
