"""What BatchMean does without L2 normalization: distances between logits, after a fifth of a run on SVHN.

    python benchmarks/without_l2.py --data-dir DIR

The settings are those of the recipe laptop-svhn, with seed 10, on validation images. A run takes two minutes or so; the
runs are in runs/without_l2, and are resumed.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import rankingmatch
from measuring import CPU, Rows, add_keep, markdown, report
from rankingmatch.bench.recipe import SCALES
from rankingmatch.networks import predict_logits
from rankingmatch.runs.config import plan_of
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import load_split

VARIANTS: dict[str, dict[str, Any]] = {
    "with L2": {},
    "without L2": {"l2_normalize": False},
    "true mean, with L2": {"true_mean": True},
    "true mean, without L2": {"true_mean": True, "l2_normalize": False},
}
LAPTOP = SCALES["laptop"]
SETTINGS = {**LAPTOP.settings, "image_size": LAPTOP.side, "mu": LAPTOP.mu, "steps": LAPTOP.steps}
PART = {"stop_after": 1000, "evaluate_every": 500, "seed": 10}
IMAGES = 2000


def table(rows: Rows) -> str:
    """A line for each variant."""
    lines = [
        (
            row["variant"],
            f"{row['cross_entropy']:.2f}",
            f"{row['ranking_loss']:.3f}",
            f"{row['same']:.1f}",
            f"{row['different']:.1f}",
            f"{100 * row['ignored']:.0f}%",
            f"{100 * row['confident']:.1f}%",
            f"{row['validation_error']:.1f}",
        )
        for row in rows
    ]
    head = (
        "",
        "cross-entropy of the labels",
        "their ranking loss",
        "distance of logits, same class",
        "different classes",
        "variance that softmax ignores",
        "confident",
        "validation error %",
    )
    return markdown(head, lines)


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where the files of SVHN are")
    parser.add_argument("--out", type=Path, default=Path("runs/without_l2"), help="directory of the runs")
    add_keep(parser)
    given = parser.parse_args()
    rows = [measured(name, given.out, given.data_dir) for name in VARIANTS]
    report(table(rows), rows, given.keep)


def measured(variant: str, out: Path, data_dir: Path | None) -> dict[str, Any]:
    """Train a variant, unless it is there, and look at its logits."""
    given = {**SETTINGS, **PART, **VARIANTS[variant]}
    if data_dir is not None:
        given["data_dir"] = str(data_dir)
    path = out / variant.replace(", ", "-").replace(" ", "-")
    run = rankingmatch.train(
        "svhn", method="rankingmatch-bm", labels=250, out=path, resume=True, report=False, verbose=True, **given
    )
    last = run.history()[-1]
    return {
        "variant": variant,
        "cross_entropy": last["loss_labeled_ce"],
        "ranking_loss": last["loss_labeled_rank"],
        **distances(run),
        "confident": last["confident"],
        "validation_error": last["val_error"],
    }


def distances(run: Run) -> dict[str, float]:
    """Mean distances between the logits of validation images, and the part of their variance that softmax ignores.

    Softmax is the same if a number is added to all logits of an image: it ignores how the mean of the logits varies.
    """
    split = load_split(plan_of(run.config()))
    assert split.validation is not None
    labels = split.validation.labels[:IMAGES]
    logits = predict_logits(run.load_model()[0], split.validation.images[:IMAGES], CPU)
    gaps = np.linalg.norm(logits[:, None] - logits[None], axis=2)
    same, others = labels[:, None] == labels[None], ~np.eye(len(labels), dtype=bool)
    shift = logits.mean(1, keepdims=True).repeat(logits.shape[1], 1)
    return {
        "same": float(gaps[same & others].mean()),
        "different": float(gaps[~same].mean()),
        "ignored": float(shift.var(0).sum() / logits.var(0).sum()),
    }


if __name__ == "__main__":
    main()
