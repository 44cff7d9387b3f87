"""Scikit-learn's own semi-supervised classifiers on digits, with the same labels and test images as our runs.

    python benchmarks/scikit_learn.py

Their settings are the best of a few on the validation images of these folds.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from measuring import Rows, add_keep, markdown, report
from rankingmatch.data import Split
from rankingmatch.runs.config import resolve
from rankingmatch.runs.job import load_split

CHOICES: dict[str, list[ClassifierMixin]] = {
    "SelfTrainingClassifier with an SVC": [
        SelfTrainingClassifier(CalibratedClassifierCV(SVC(gamma=gamma), cv=2, ensemble=False), threshold=threshold)
        for gamma in (0.3, 1, 3)
        for threshold in (0.6, 0.75, 0.9)
    ],
    "LabelSpreading": [
        *(LabelSpreading("knn", n_neighbors=neighbors) for neighbors in (3, 5, 7, 10)),
        *(LabelSpreading("rbf", gamma=gamma) for gamma in (3, 10, 30)),
    ],
}
FOLDS = 5


def vectors(images: np.ndarray) -> np.ndarray:
    """Images as vectors of norm about one."""
    return np.asarray(images.reshape(len(images), -1) / (255 * np.sqrt(images[0].size) / 2))


def measure(classifier: ClassifierMixin, split: Split) -> tuple[float, float, float]:
    """Validation and test error in percent, and the seconds of `fit`."""
    used = np.concatenate([split.labeled_rows, split.unlabeled_rows])
    started = time.perf_counter()
    classifier.fit(vectors(split.images[used]), split.labels[used])
    seconds = time.perf_counter() - started
    assert split.validation is not None
    assert split.test is not None
    parts = [split.validation, split.test]
    validation, test = (100 * float(np.mean(classifier.predict(vectors(part.images)) != part.labels)) for part in parts)
    return validation, test, seconds


def table(rows: Rows) -> str:
    """A line for each classifier."""
    lines = [
        (
            row["classifier"],
            f"{np.mean(row['errors']):.2f} ± {np.std(row['errors'], ddof=1):.2f}",
            ", ".join(f"{error:.2f}" for error in row["errors"]),
            f"{np.mean(row['seconds']):.2f}",
        )
        for row in rows
    ]
    return markdown(("", "test error %", "of each fold", "seconds"), lines)


def main() -> None:
    """Measure and print the errors over all folds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_keep(parser)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)  # rbf: images that no label reaches
    splits = [load_split(resolve("digits", "supervised", {"seed": seed})) for seed in range(FOLDS)]
    rows: Rows = []
    for name, choices in CHOICES.items():
        figures = [np.array([measure(choice, split) for split in splits]) for choice in choices]
        _, test, seconds = min(figures, key=lambda of_folds: of_folds[:, 0].mean()).T
        rows.append({"classifier": name, "errors": test.tolist(), "seconds": seconds.tolist()})
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
