"""A small problem on which everything runs in moments."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rankingmatch.augment import Policy, ViewSettings, view_policies
from rankingmatch.data import Dataset, Images, Split, assemble_split
from rankingmatch.methods import Method, find_method, make_method
from rankingmatch.networks import NetworkSettings
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import State, initial_state

VIEW_SETTINGS = ViewSettings(flip=False, padding=1, cutout=2)
VIEWS: dict[str, Policy] = view_policies(VIEW_SETTINGS)
CPU = torch.device("cpu")

RECIPE_TEXT = """
title = "Mine"
methods = ["supervised", "fixmatch-ra"]
folds = 2
[datasets.digits]
labels = [40]
[settings]
steps = 4
batch_size = 8
mu = 1
threads = 1
"""


def models(place: Path) -> dict[str, bytes]:
    """The content of the models of runs, by the names of their directories."""
    return {path.parent.name: path.read_bytes() for path in place.rglob("model.safetensors")}


def tiny_images(count: int, classes: int, channels: int, seed: int) -> Images:
    """8×8 noise around one pattern per class."""
    patterns = np.random.default_rng(0).integers(0, 200, (classes, 8, 8, channels))
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    noise = rng.integers(0, 56, (count, 8, 8, channels))
    return Images((patterns[labels] + noise).astype(np.uint8), labels.astype(np.int64))


def tiny_split(classes: int = 3, channels: int = 1, labeled: int = 0, unlabeled: int = 40) -> Split:
    """`labeled` images (two of each class if 0), `unlabeled` ones, and as many for validation and test."""
    labeled = labeled or 2 * classes
    train = tiny_images(labeled + unlabeled, classes, channels, seed=1)
    names = tuple(f"class {number}" for number in range(classes))
    validation = tiny_images(2 * classes, classes, channels, seed=2)
    test = tiny_images(2 * classes, classes, channels, seed=3)
    return assemble_split(Dataset(names, train, validation, test), np.arange(labeled), np.arange(0))


def tiny_settings(steps: int = 6, seed: int = 0, batch_size: int = 6, **others: float) -> TrainSettings:
    values = {"mu": 2, "learning_rate": 0.05, "evaluate_every": 3, "log_every": 2, **others}
    return TrainSettings(steps=steps, seed=seed, batch_size=batch_size, **values)  # type: ignore[arg-type]


def tiny_state(
    split: Split, settings: TrainSettings, method: str = "rankingmatch-bm", **hyperparameters: object
) -> State:
    return tiny_state_on(CPU, split, settings, make_method(method, hyperparameters), method)


def tiny_state_on(device: torch.device, split: Split, settings: TrainSettings, method: Method, name: str) -> State:
    views = replace(VIEW_SETTINGS, strong=find_method(name).preset.get("strong", "randaugment"))
    network = find_method(name).preset.get("network", "wrn-10-1")
    return initial_state(split, method, NetworkSettings(network), views, settings, device)


def clusters(each: int = 30, classes: int = 4, dimensions: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, dimensions) around the center of each class, and the classes (n,)."""
    rng = np.random.default_rng(0)
    truth = np.tile(np.arange(classes), each)
    centers = 1.2 * rng.standard_normal((classes, dimensions))
    return (centers[truth] + rng.standard_normal((len(truth), dimensions))).astype(np.float32), truth
