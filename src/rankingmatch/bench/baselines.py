"""Baselines: classifiers of scikit-learn on frozen features of the pretrained network that the runs start from."""

import time
import warnings
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from rankingmatch.core.errors import ConfigError
from rankingmatch.core.metrics import Errors, confusion_matrix
from rankingmatch.data import Dataset, Images, Split, rows_to_json
from rankingmatch.heads.smoothing import unit_features
from rankingmatch.networks import channel_statistics, make_classifier, predict_logits_and_features
from rankingmatch.networks.onnx import accelerated
from rankingmatch.runs.config import Config, Plan
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import load_dataset, load_split
from rankingmatch.runs.result import Result

# By name: whether it also learns from the unlabeled features, whose label is -1.
BASELINES = {"logistic-regression": False, "label-spreading": True, "self-training": True}

# Features of the training, validation and test images of a dataset, (n, width) each; None where it has no such images.
Features = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]


def make_baseline(name: str) -> Any:
    """A classifier; its settings were chosen on validation images (docs/photographs.md)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

    if name == "label-spreading":
        return LabelSpreading(kernel="rbf", gamma=10, alpha=0.5)
    if name == "self-training":  # C = 2 is hardly ever confident
        return SelfTrainingClassifier(LogisticRegression(C=30, max_iter=1000), threshold=0.7)
    return LogisticRegression(C=2, max_iter=1000)


def frozen_features(dataset: Dataset, config: Config) -> Features:
    """The features that the head of the network takes before any training."""
    if config.execution.threads:
        torch.set_num_threads(config.execution.threads)
    device, train, network = config.device(), dataset.train.images, config.network
    statistics = channel_statistics(train, np.arange(len(train)))
    given = network.network, len(dataset.classes), *statistics
    model = make_classifier(*given, pretrained=network.pretrained, weights=network.weights).to(device).eval()
    parts = [part.images for part in (dataset.train, dataset.validation, dataset.test) if part is not None]
    fast = accelerated(model, sum(map(len, parts)))

    def compute(part: Images | None) -> np.ndarray | None:
        if part is None or len(part) == 0:
            return None
        _, features = predict_logits_and_features(fast, part.images, device)
        if features is None:
            raise ConfigError(f"network '{network.network}' returns logits only; the baselines need its features")
        return features

    first = compute(dataset.train)
    assert first is not None
    return first, compute(dataset.validation), compute(dataset.test)


def errors_of(name: str, split: Split, features: Features) -> tuple[Errors | None, Errors | None]:
    """Errors on validation and test images after training on the labels of a split; None without such images."""
    train, validation, test = features
    rows = np.union1d(split.labeled_rows, split.unlabeled_rows)  # without validation images
    mean = train[rows].mean(0)
    used = rows if BASELINES[name] else split.labeled_rows
    baseline = make_baseline(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence, and rows that are all labeled
        baseline.fit(unit_features(train[used], mean), split.labels[used])

    def errors(part: np.ndarray | None, images: Images | None) -> Errors | None:
        if part is None or images is None:
            return None
        predicted = baseline.predict(unit_features(part, mean))
        return Errors.of(confusion_matrix(images.labels, predicted, len(split.classes)))

    held_out = train[split.validation_rows] if len(split.validation_rows) else validation
    return errors(held_out, split.validation), errors(test, split.test)


def fit_to_result(name: str, run: Run, plan: Plan, known: dict[Any, Features]) -> Result:
    """Train a baseline on the labels that the runs of this plan see, and write its result into a run directory.

    The configuration there is that of the runs it is compared with; of its seconds, those of the features are not
    counted. The features of the same images by the same network are computed once and added to `known`.
    """
    config, split = plan.config, load_split(plan)
    key = config.dataset, config.data.image_size, config.data.crop, config.network
    if key not in known:
        known[key] = frozen_features(load_dataset(plan), config)
    features = known[key]
    started = time.perf_counter()
    with threadpool_limits(config.execution.threads):  # of NumPy's and scikit-learn's libraries
        validation, test = errors_of(name, split, features)
    result = Result(
        dataset=config.dataset,
        method=name,
        labels=len(split.labeled_rows),
        seed=config.training.seed,
        steps=0,
        seconds=round(time.perf_counter() - started, 3),
        test=test,
        val=validation,
    )
    run.lock()
    try:
        if not run.exists():
            run.create(config)
        run.save_rows(rows_to_json(split))
        run.finish(result)
    finally:
        run.unlock()
    return result
