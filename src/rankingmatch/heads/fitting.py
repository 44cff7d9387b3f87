"""A head that is fitted to features and labels, predicted ones among them: before training, and again at its end."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from rankingmatch.core.distributed import alone
from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.data import Progress, Split, no_progress
from rankingmatch.heads import HEAD_METHOD
from rankingmatch.heads.linear import fit_head
from rankingmatch.heads.smoothing import smooth_features, unit_features
from rankingmatch.networks import Classifier, batched_outputs, normalize_head
from rankingmatch.networks.onnx import accelerated
from rankingmatch.training.state import State

__all__ = ["MOST_IMAGES", "finish_head", "fitted_head", "start_head"]

MOST_IMAGES = 5_000  # the features of so many take half a minute on a core
GIVEN_WEIGHT = 10.0  # of a label that is given; a predicted one has its probability
AT_ONCE = 256  # images


def start_head(state: State, split: Split, seed: int, progress: Progress = no_progress) -> None:
    """Fit the head of a state, and that of its average, to labels.

    If the method uses unlabeled images, their labels are predicted first. With very many images, some are used.
    """
    _fit(state, split, seed, (state.model, state.ema), partial(progress, "starting the head"))


def finish_head(state: State, split: Split, seed: int, progress: Progress = no_progress) -> None:
    """Fit the head of a state's average once more, to the features that training has improved.

    Neighbors are more often of the same class then, and so are the predicted labels.
    """
    if state.objective.method.unlabeled_views:
        _fit(state, split, seed, (state.ema,), partial(progress, "fitting the head"))


def _fit(
    state: State, split: Split, seed: int, models: Iterable[Classifier], progress: Callable[[int, int], None]
) -> None:
    rows = _some_rows(split, seed) if state.objective.method.unlabeled_views else split.labeled_rows
    with alone():  # one process fits, and shares the result
        tensors = fitted_head(_features(state, split, rows, progress), split.labels[rows], len(split.classes), seed)
    for model in models:
        head = normalize_head(model.backbone)
        with torch.no_grad():
            for name, values in tensors.items():
                getattr(head, name).copy_(torch.from_numpy(values))


def fitted_head(features: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> dict[str, np.ndarray]:
    """Logistic regression on normalized features, as the tensors of a `NormalizedLinear`.

    Where a label is missing, it is predicted: by SoftMatch on features that move toward those of their neighbors, as
    behind the labeling page. Features of new images are not smoothed, so the head itself takes them as they are.

    `features` are (n, width). A label (n,) is negative where it is to be predicted; each class has one.
    Returns "weight" (classes, width), "bias" (classes,) and "center" (width,).
    """
    targets, weights = labels, np.full(len(labels), GIVEN_WEIGHT)
    if (labels < 0).any():
        smoothed = smooth_features(features, seed)
        predicted = fit_head(smoothed, np.maximum(labels, -1), classes, seed, HEAD_METHOD).probabilities(smoothed)
        targets = np.where(labels >= 0, labels, predicted.argmax(1))
        weights = np.where(labels >= 0, GIVEN_WEIGHT, predicted.max(1))
    center = features.mean(0)
    fit = LogisticRegression(max_iter=300).fit(unit_features(features, center), targets, weights)
    weight, bias = fit.coef_, fit.intercept_
    if classes == 2:  # scikit-learn has one row for two classes
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return {"weight": weight, "bias": bias, "center": center}


def _some_rows(split: Split, seed: int) -> np.ndarray:
    """The labeled rows and all, or many, of the unlabeled ones."""
    unlabeled = split.unlabeled_rows
    most = max(0, MOST_IMAGES - len(split.labeled_rows))
    if len(unlabeled) > most:
        unlabeled = numpy_generator(seed, Purpose.INITIAL_WEIGHTS).choice(unlabeled, most, replace=False)
    return np.union1d(split.labeled_rows, unlabeled)


def _features(state: State, split: Split, rows: np.ndarray, progress: Callable[[int, int], None]) -> np.ndarray:
    """The features of training images: of the first precomputed view, or of the images if there is no bank."""
    model: nn.Module = state.ema
    if state.bank is not None:
        maps = state.bank.views[state.objective.method.labeled_views[0]][0]
        inputs = maps.transpose(0, 2, 3, 1)  # as images are
    else:
        inputs = split.images
        model = accelerated(model, len(rows))
    features = []
    for start in range(0, len(rows), AT_ONCE):
        chosen = rows[start : start + AT_ONCE]
        features += [output.features.cpu().numpy() for output in batched_outputs(model, inputs[chosen], state.device)]
        progress(start + len(chosen), len(rows))
    return np.concatenate(features)
