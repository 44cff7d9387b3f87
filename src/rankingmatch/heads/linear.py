"""A linear classifier on fixed features: behind the labeling page, and as the first and last head of a network.

Logistic regression learns from the labeled images; one of our methods may go on from there, with the help of those
without labels. For a method, a weak view is a feature as it is; in stronger views, some of its components are 0, as in
dropout.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.core.devices import on_threads
from rankingmatch.core.distributed import alone, from_first_process
from rankingmatch.core.errors import unknown_name
from rankingmatch.core.randomness import Purpose, derived_seed, numpy_generator
from rankingmatch.data import Dataset, Images, Progress, Split, assemble_split, no_progress
from rankingmatch.data.bank import Bank
from rankingmatch.heads import HEAD_METHOD, LOGISTIC_REGRESSION
from rankingmatch.heads.smoothing import known_rows, smooth_features, unit_features
from rankingmatch.methods import Method, Task, hyperparameters_of, make_method
from rankingmatch.networks import Classifier, NormalizedLinear, batched_outputs, normalize_head
from rankingmatch.networks.onnx import accelerated
from rankingmatch.training.loop import train
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import FittedTo, State, first_view, make_state, task_of

INVERSE_REGULARIZATION = 10.0  # of logistic regression
# Chosen on the validation images of photographs of clothing, 20 to 100 labels, seeds 10 to 14 (docs/label.md).
SETTINGS: dict[str, Any] = {
    "steps": 200,
    "batch_size": 32,
    "mu": 2,
    "learning_rate": 0.03,
    "optimizer": "adamw",
    "weight_decay": 1e-3,
    "ema_decay": 0.97,
    "evaluate_every": 200,
    "log_every": 200,
}
HYPERPARAMETERS = {"threshold": 0.8, "statistics_decay": 0.9}  # of the method, where it has them
DROPPED = {"weak": 0.0, "medium": 0.25, "strong": 0.5}  # share of the components that are 0
COPIES = 4  # of each stronger view
# Of the head of a network:
MOST_IMAGES = 5_000  # the features of so many take half a minute on a core
GIVEN_WEIGHT = 10.0  # of a label that is given; a predicted one has its probability
AT_ONCE = 256  # images


@dataclass(frozen=True)
class Head:
    """A linear classifier of unit features."""

    mean: np.ndarray  # (d,), of the features that it was trained on
    weight: np.ndarray  # (d, classes)
    bias: np.ndarray  # (classes,); −∞ for a class without labels, whose probability is zero

    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """The probabilities (n, classes) for features (n, d)."""
        logits = unit_features(features, self.mean) @ self.weight + self.bias
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(1, keepdims=True), np.float32)


def fit_head(
    features: np.ndarray, labels: np.ndarray, classes: int, seed: int, method: str = LOGISTIC_REGRESSION
) -> Head:
    """Train a head on the labeled images, and with a method, one that needs no images, also on those without a label.

    Features (n, d) are best from `smooth_features`. Labels (n,) are −1 without a label, or −2 for images that are not
    used at all. At least one image has a label; classes without labels get the probability zero.
    """
    known = known_rows(features)  # the other rows are zero
    mean = (features.sum(0, dtype=np.float64) / max(1, int(known.sum()))).astype(np.float32)
    used = np.flatnonzero((labels >= 0) | (known & (labels == -1)))
    units, labels = unit_features(features[used], mean), labels[used]
    present = np.unique(labels[labels >= 0])
    labels = np.where(labels >= 0, np.searchsorted(present, labels), -1)
    weight, bias = _logistic_regression(units[labels >= 0], labels[labels >= 0], len(present))
    if method != LOGISTIC_REGRESSION and len(present) > 1 and (labels < 0).any():
        weight, bias = train_head(units, labels, weight, bias, method, seed)
    whole = Head(mean, np.zeros((len(weight), classes), np.float32), np.full(classes, -np.inf, np.float32))
    whole.weight[:, present], whole.bias[present] = weight, bias
    return whole


def _logistic_regression(features: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (d, classes) and bias (classes,); each class has a label."""
    from sklearn.linear_model import LogisticRegression

    if classes == 1:
        return np.zeros((features.shape[1], 1), np.float32), np.zeros(1, np.float32)
    model = LogisticRegression(C=INVERSE_REGULARIZATION, class_weight="balanced", max_iter=500, tol=1e-3).fit(
        features, labels
    )
    if classes == 2:  # scikit-learn has one row for two classes
        return np.stack([0 * model.coef_[0], model.coef_[0]], 1), np.array([0, model.intercept_[0]])
    return model.coef_.T, model.intercept_


# --- a head that a method trains ----------------------------------------------------------------------------


def train_head(
    features: np.ndarray, labels: np.ndarray, weight: np.ndarray, bias: np.ndarray, method: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Train a head (d, classes), (classes,) further, with a method; returns its new weight and bias.

    The features (n, d) have unit length. A label is −1 where there is none; every class has one, and some images have
    none.
    """
    settings, chosen = TrainSettings(**SETTINGS, seed=seed), _method(method)
    nothing = np.broadcast_to(np.uint8(0), (len(labels), 1, 1, 1))  # nobody looks: every view comes from the bank
    dataset = Dataset(tuple(map(str, range(bias.shape[0]))), Images(nothing, labels))
    split = assemble_split(dataset, np.flatnonzero(labels >= 0), np.empty(0, np.int64), balanced=True)
    model = Classifier(_OnFeatures(weight, bias), torch.zeros(1), torch.ones(1))
    model.tune = "head"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, Purpose.INITIAL_WEIGHTS))
        chosen.prepare(task_of(split, len(weight)))
    state = make_state(model, chosen, settings, torch.device("cpu"))
    state.bank = _bank(features, chosen, seed)
    with on_threads(1):  # more would wait for each other: the matrices are small
        deque(train(state, split, settings), maxlen=0)
    head = state.ema.backbone.head
    assert isinstance(head, NormalizedLinear)
    return head.weight.numpy().T.copy(), head.bias.numpy().copy()


def require_method(name: str) -> None:
    """Raise ConfigError if there is no such method, or if it needs images."""
    from rankingmatch.methods import METHODS  # which imports them all

    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    _method(name).prepare(Task(classes=2, features=2, unlabeled=2, labeled=2))


class _OnFeatures(nn.Module):
    """A network of which only the head is left: features (n, d, 1, 1) → logits and features."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.head = NormalizedLinear(*weight.shape)
        self.head.weight = nn.Parameter(torch.from_numpy(weight.T.astype(np.float32)))
        self.head.bias = nn.Parameter(torch.from_numpy(bias.astype(np.float32)))

    def upper(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        features = maps.flatten(1)
        return self.head(features), features


def _method(name: str) -> Method:
    known = {option.name for option in hyperparameters_of(name)}
    return make_method(name, {key: value for key, value in HYPERPARAMETERS.items() if key in known})


def _bank(features: np.ndarray, method: Method, seed: int) -> Bank:
    """The views that the method asks for."""
    rng = numpy_generator(seed, Purpose.BANK)
    views = {}
    for name in sorted({*method.labeled_views, *method.unlabeled_views}):
        dropped = DROPPED[name]
        kept = [rng.random(features.shape, np.float32) >= dropped for _ in range(COPIES if dropped else 1)]
        views[name] = [(features * mask).astype(np.float16)[:, :, None, None] for mask in kept]
    return Bank(views)


# --- the head of a network ----------------------------------------------------------------------------------


def start_head(state: State, split: Split, seed: int, progress: Progress = no_progress) -> FittedTo:
    """Fit the head of a state, and that of its average, to labels; returns what it was fitted to.

    If the method uses unlabeled images, their labels are predicted first. With very many images, some are used.
    """
    return _fit((state.model, state.ema), state, split, seed, "starting the head", progress)


def finish_head(state: State, split: Split, seed: int, progress: Progress = no_progress) -> None:
    """Fit the head of a state's average once more, to the features that training has improved.

    Neighbors are more often of the same class then, and so are the predicted labels.
    """
    if state.objective.method.unlabeled_views:
        _fit((state.ema,), state, split, seed, "fitting the head", progress)


def _fit(
    models: tuple[Classifier, ...], state: State, split: Split, seed: int, task: str, progress: Progress
) -> FittedTo:
    rows = split.labeled_rows
    if state.objective.method.unlabeled_views:
        unlabeled, most = split.unlabeled_rows, max(0, MOST_IMAGES - len(rows))
        if len(unlabeled) > most:
            unlabeled = numpy_generator(seed, Purpose.INITIAL_WEIGHTS).choice(unlabeled, most, replace=False)
        rows = np.union1d(rows, unlabeled)

    def computed() -> np.ndarray:
        with alone():  # one process computes, and shares the result
            return _features(state, split, rows, task, progress)

    fitted = FittedTo(rows, from_first_process(computed))
    set_head(models, fitted, split, seed)
    return fitted


def set_head(models: tuple[Classifier, ...], fitted: FittedTo, split: Split, seed: int) -> None:
    """Fit a head to features and the labels of their rows, and give it to models."""
    rows, features = fitted

    def computed() -> dict[str, np.ndarray]:
        with alone():  # a method trains on the labels and predicts others
            return fitted_head(features, split.labels[rows], len(split.classes), seed)

    tensors = from_first_process(computed)
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
    from sklearn.linear_model import LogisticRegression

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


def _features(state: State, split: Split, rows: np.ndarray, task: str, progress: Progress) -> np.ndarray:
    """The features of training images."""
    model = state.ema if state.bank is not None else accelerated(state.ema, len(rows))
    features = []
    for start in range(0, len(rows), AT_ONCE):
        inputs = first_view(state, split, rows[start : start + AT_ONCE])
        features += [output.features.cpu().numpy() for output in batched_outputs(model, inputs, state.device)]
        progress(task, min(start + AT_ONCE, len(rows)), len(rows))
    return np.concatenate(features)
