"""Baselines: classifiers of scikit-learn on frozen features of the pretrained network that the runs start from."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.metrics import Errors, confusion_matrix, error_rate
from rankingmatch.data import Dataset, Split, rows_to_json
from rankingmatch.heads.smoothing import unit_features
from rankingmatch.networks import channel_statistics, make_classifier, predict_logits_and_features
from rankingmatch.networks.onnx import accelerated
from rankingmatch.runs.config import Config, Plan
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import load_dataset, load_split
from rankingmatch.runs.result import Result

__all__ = ["BASELINES", "Baseline", "FeatureCache", "fit_to_result", "require_features"]


@dataclass(frozen=True)
class Baseline:
    """A classifier on features, and whether it also learns from the unlabeled ones (whose label is -1)."""

    make: Callable[[], Any]
    uses_unlabeled: bool


def _logistic_regression(strength: float = 2) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=1000)


def _label_spreading() -> Any:
    from sklearn.semi_supervised import LabelSpreading

    return LabelSpreading(kernel="rbf", gamma=10, alpha=0.5)


def _self_training() -> Any:
    from sklearn.semi_supervised import SelfTrainingClassifier

    return SelfTrainingClassifier(_logistic_regression(30), threshold=0.7)  # C = 2 is hardly ever confident


# Their settings were chosen on validation images (docs/photographs.md).
BASELINES: dict[str, Baseline] = {
    "logistic-regression": Baseline(_logistic_regression, uses_unlabeled=False),
    "label-spreading": Baseline(_label_spreading, uses_unlabeled=True),
    "self-training": Baseline(_self_training, uses_unlabeled=True),
}


def require_features(name: str, config: Config) -> None:
    """Raise ConfigError for a baseline on features of random weights."""
    if not config.network.pretrained and config.network.weights is None:
        raise ConfigError(
            f"{name} needs features of a pretrained network; set {setting('pretrained')} or {setting('weights')}, or "
            "remove it from the recipe"
        )


class Features(NamedTuple):
    """Frozen features of the images of a dataset, (n, width) each; None where it has no such images."""

    train: np.ndarray
    validation: np.ndarray | None
    test: np.ndarray | None


class FeatureCache:
    """Computes features once for all runs with the same images and the same network."""

    def __init__(self) -> None:
        self._features: dict[Any, Features] = {}

    def of(self, plan: Plan) -> Features:
        """The features of a plan's images."""
        config = plan.config
        key = config.dataset, config.data.image_size, config.data.crop, config.network
        if key not in self._features:
            self._features[key] = frozen_features(load_dataset(plan), config)
        return self._features[key]


def frozen_features(dataset: Dataset, config: Config) -> Features:
    """The features that the head of the network takes before any training."""
    if config.execution.threads:
        torch.set_num_threads(config.execution.threads)
    device, train = config.device(), dataset.train.images
    network = config.network
    model = make_classifier(
        network.network,
        len(dataset.classes),
        *channel_statistics(train, np.arange(len(train))),
        pretrained=network.pretrained,
        weights=network.weights,
    )
    parts = [None if part is None else part.images for part in (dataset.train, dataset.validation, dataset.test)]
    fast = accelerated(model.to(device).eval(), sum(len(images) for images in parts if images is not None))

    def compute(images: np.ndarray | None) -> np.ndarray | None:
        if images is None or len(images) == 0:
            return None
        _, features = predict_logits_and_features(fast, images, device)
        if features is None:
            raise ConfigError(f"network '{network.network}' returns logits only; the baselines need its features")
        return features

    first, *others = map(compute, parts)
    assert first is not None
    return Features(first, *others)


def confusions_of(baseline: Baseline, split: Split, features: Features) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Confusion matrices of validation and test images after training on the labels of a split; None without them."""
    rows = np.union1d(split.labeled_rows, split.unlabeled_rows)  # without validation images
    mean = features.train[rows].mean(0)
    used = rows if baseline.uses_unlabeled else split.labeled_rows
    estimator = baseline.make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence, and rows that are all labeled
        estimator.fit(unit_features(features.train[used], mean), split.labels[used])

    def confusion(part: np.ndarray | None, truth: np.ndarray | None) -> np.ndarray | None:
        if part is None or truth is None:
            return None
        predicted = estimator.predict(unit_features(part, mean))
        return confusion_matrix(truth, predicted, len(split.classes))

    held_out = features.train[split.validation_rows] if len(split.validation_rows) else features.validation
    validation = None if split.validation is None else split.validation.labels
    return confusion(held_out, validation), confusion(features.test, None if split.test is None else split.test.labels)


def errors_of(baseline: Baseline, split: Split, features: Features) -> tuple[float | None, float | None]:
    """Validation and test error in percent after training on the labels of a split; None without such images."""
    validation, test = (None if one is None else error_rate(one) for one in confusions_of(baseline, split, features))
    return validation, test


def fit_to_result(name: str, run: Run, plan: Plan, cache: FeatureCache) -> Result:
    """Train a baseline on the labels that the runs of this plan see, and write its result into a run directory.

    The configuration there is that of the runs it is compared with; of its seconds, those of the features are not
    counted.
    """
    config, split, features = plan.config, load_split(plan), cache.of(plan)
    started = time.perf_counter()
    with threadpool_limits(config.execution.threads):  # of NumPy's and scikit-learn's libraries
        validation, test = confusions_of(BASELINES[name], split, features)
    result = Result(
        dataset=config.dataset,
        method=name,
        labels=len(split.labeled_rows),
        seed=config.training.seed,
        steps=0,
        seconds=round(time.perf_counter() - started, 3),
        test=None if test is None else Errors.of(test),
        val=None if validation is None else Errors.of(validation),
    )
    lock = run.lock()
    try:
        if not run.exists():
            run.create(config)
        run.save_rows(rows_to_json(split))
        run.finish(result)
    finally:
        lock.release()
    return result
