"""Scikit-learn on frozen features of EfficientNet-Lite0: the baselines for photographs, on the splits of our runs.

    python benchmarks/frozen_features.py data/clothing --labels 40 200 --folds 5

Logistic regression, LabelSpreading and SelfTrainingClassifier see the same labeled images as the runs of
`rankingmatch bench benchmarks/photographs.toml`. C of the logistic regression was chosen on validation images of
seeds 10 to 12; the other settings were not tuned.
"""

import argparse
import statistics
import sys
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from rankingmatch.data import Split
from rankingmatch.networks import freeze, make_classifier
from rankingmatch.networks.onnx import onnx_function
from rankingmatch.runs.config import resolve
from rankingmatch.runs.job import load_split

AT_ONCE = 64  # images


class Features(torch.nn.Module):
    """uint8 images → the features that the head takes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_classifier("efficientnet-lite0", 2, pretrained=True).eval()
        freeze(self.model, "head")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, 1280)."""
        return self.model.maps(images).flatten(1)


def features_of(images: np.ndarray) -> np.ndarray:
    """(n, h, w, 3) uint8 images → (n, 1280)."""
    module = Features()
    batches = [
        torch.from_numpy(images[start : start + AT_ONCE].transpose(0, 3, 1, 2).copy())
        for start in range(0, len(images), AT_ONCE)
    ]
    compute = onnx_function(module, batches[0][:2])
    with torch.inference_mode():
        return np.concatenate([compute(batch) if compute else module(batch).numpy() for batch in batches])


def baselines() -> dict[str, tuple[Any, bool]]:
    """The estimators by name, and whether they learn from unlabeled rows, too."""
    return {
        "logistic regression": (LogisticRegression(C=0.01, max_iter=3000), False),
        "LabelSpreading": (make_pipeline(StandardScaler(), LabelSpreading("knn", n_neighbors=10, max_iter=100)), True),
        "SelfTraining": (SelfTrainingClassifier(LogisticRegression(C=0.01, max_iter=3000), threshold=0.9), True),
    }


def error(
    estimator: Any, rows: np.ndarray, split: Split, train: np.ndarray, part: np.ndarray, truth: np.ndarray
) -> float:
    """Percent of wrong predictions after training on these rows and the labels of a split."""
    estimator.fit(train[rows], split.labels[rows])
    return float(100 * np.mean(estimator.predict(part) != truth))


def main() -> None:
    """Print a table of test errors, mean ± standard deviation over the folds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder")
    parser.add_argument("--labels", type=int, nargs="+", default=[40, 200])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="*", help="instead of the folds 0, 1, …")
    parser.add_argument("--part", choices=["test", "validation"], default="test")
    given = parser.parse_args()
    seeds = given.seeds or list(range(given.folds))
    splits = {
        (labels, seed): load_split(resolve(given.folder, "supervised", {"labels": labels, "seed": seed}))
        for labels in given.labels
        for seed in seeds
    }
    first = next(iter(splits.values()))
    evaluated = getattr(first, given.part)
    if evaluated is None:
        sys.exit(f"{given.folder} has no {given.part} images")
    train, part = features_of(first.images), features_of(evaluated.images)
    print(f"| {given.part} error % | " + " | ".join(f"{labels} labels" for labels in given.labels) + " |")
    print("|---|" + "---|" * len(given.labels))
    for name, (estimator, semi_supervised) in baselines().items():
        cells = []
        for labels in given.labels:
            errors = []
            for seed in seeds:
                split = splits[labels, seed]
                rows = np.arange(len(train)) if semi_supervised else split.labeled_rows
                errors.append(error(estimator, rows, split, train, part, evaluated.labels))
            deviation = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
            cells.append(f"{statistics.mean(errors):.2f}{deviation}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
