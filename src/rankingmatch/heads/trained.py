"""A head that one of our methods trains on fixed features, with the help of the pictures without labels.

A weak view is a feature as it is; in stronger views, some of its components are 0, as in dropout.
"""

import copy
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.core.devices import on_threads
from rankingmatch.core.errors import unknown_name
from rankingmatch.core.randomness import Purpose, derived_seed, numpy_generator
from rankingmatch.data import Images, Split
from rankingmatch.data.bank import Bank
from rankingmatch.data.dataset import Dataset
from rankingmatch.data.split import assemble_split
from rankingmatch.methods import METHODS, Method, Task, hyperparameters_of, make_method
from rankingmatch.networks import Classifier, NormalizedLinear
from rankingmatch.training.loop import train
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import Objective, State, make_optimizer

__all__ = ["require_method", "train_head"]

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


def train_head(
    features: np.ndarray, labels: np.ndarray, weight: np.ndarray, bias: np.ndarray, method: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Train a linear head further, with a method for labeled and unlabeled pictures.

    Parameters
    ----------
    features : numpy.ndarray
        Unit features of shape (n, d).
    labels : numpy.ndarray
        Labels of shape (n,), −1 without a label. Every class has one, and some pictures have none.
    weight, bias : numpy.ndarray
        What training starts from, of shapes (d, classes) and (classes,).
    method : str
        The name of the method.
    seed : int
        The seed of everything random.

    Returns
    -------
    tuple of numpy.ndarray
        The trained weight and bias.
    """
    split = _split(labels, bias.shape[0])
    settings = TrainSettings(**SETTINGS, seed=seed)
    state = _state(_method(method), split, weight, bias, settings)
    state.bank = _bank(features, state.objective.method, seed)
    with on_threads(1):  # more would wait for each other: the matrices are small
        deque(train(state, split, settings), maxlen=0)
    head = _head(state.ema)
    return head.weight.numpy().T.copy(), head.bias.numpy().copy()


def require_method(name: str) -> None:
    """Raise ConfigError if there is no such method, or if it needs images."""
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


def _head(model: Classifier) -> NormalizedLinear:
    assert isinstance(model.backbone, _OnFeatures)
    return model.backbone.head


def _method(name: str) -> Method:
    known = {option.name for option in hyperparameters_of(name)}
    return make_method(name, {key: value for key, value in HYPERPARAMETERS.items() if key in known})


def _split(labels: np.ndarray, classes: int) -> Split:
    """The labels with images that nobody looks at: every view comes from the bank."""
    nothing = np.broadcast_to(np.uint8(0), (len(labels), 1, 1, 1))
    dataset = Dataset(tuple(map(str, range(classes))), Images(nothing, labels))
    return assemble_split(dataset, np.flatnonzero(labels >= 0), np.empty(0, np.int64), balanced=True)


def _state(method: Method, split: Split, weight: np.ndarray, bias: np.ndarray, settings: TrainSettings) -> State:
    model = Classifier(_OnFeatures(weight, bias), torch.zeros(1), torch.ones(1))
    model.tune = "head"
    counts = np.bincount(split.labels[split.drawn_rows], minlength=len(split.classes))
    labeled, unlabeled = len(split.labeled_rows), len(split.unlabeled_rows)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(settings.seed, Purpose.INITIAL_WEIGHTS))
        method.prepare(Task(len(split.classes), len(weight), unlabeled, labeled, tuple(counts.tolist())))
    objective = Objective(model, method).train()
    ema = copy.deepcopy(model).requires_grad_(False).eval()
    return State(objective, ema, make_optimizer(objective, settings), {}, torch.device("cpu"))


def _bank(features: np.ndarray, method: Method, seed: int) -> Bank:
    """The views that the method asks for."""
    rng = numpy_generator(seed, Purpose.BANK)
    views = {}
    for name in sorted({*method.labeled_views, *method.unlabeled_views}):
        dropped = DROPPED[name]
        kept = [rng.random(features.shape, np.float32) >= dropped for _ in range(COPIES if dropped else 1)]
        views[name] = [(features * mask).astype(np.float16)[:, :, None, None] for mask in kept]
    return Bank(views)
