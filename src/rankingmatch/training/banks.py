"""Banks of a state: the frozen part of its network, computed once for several views of every image."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.augment import Policy, ViewSettings
from rankingmatch.core.randomness import Purpose, torch_generator
from rankingmatch.data import Images, Split
from rankingmatch.data.bank import Bank, BankFile, bank_directory, bank_key, read_bank
from rankingmatch.data.progress import Progress, no_progress
from rankingmatch.networks import Classifier, to_tensor
from rankingmatch.networks.onnx import accelerated
from rankingmatch.training.state import State

__all__ = ["make_bank", "measure_views", "noise_bank"]

AT_ONCE = 64  # images
MANY = 1_000_000  # images: enough for ONNX Runtime
FORMAT = 1  # of a bank, part of its key
Compute = Callable[[Tensor], np.ndarray]


def make_bank(state: State, split: Split, settings: ViewSettings, progress: Progress = no_progress) -> Bank | None:
    """The bank of a state, computed or read from the cache; None if the whole network is trained.

    It depends on the images, the frozen weights and the settings of the views, but not on the seed: runs share it.
    Images that are evaluated have a bank of their own, because the seed may choose them.
    """
    if not state.model.takes_maps:
        return None
    names = sorted({*state.objective.method.labeled_views, *state.objective.method.unlabeled_views})
    compute = _frozen_function(state, len(names) * settings.bank_views * len(split.images))
    files = [
        BankFile(f"{name}-{index}", len(split.images), _views(state, compute, split.images, name, index))
        for index in range(settings.bank_views)
        for name in names
    ]
    arrays = read_bank(bank_directory(_key(state, split.images, settings)), files, progress)
    views = {name: [arrays[f"{name}-{index}"] for index in range(settings.bank_views)] for name in names}
    evaluated = (_evaluated(state, compute, part, progress) for part in (split.validation, split.test))
    return Bank(views, *evaluated)


def _evaluated(state: State, compute: Compute, part: Images | None, progress: Progress) -> np.ndarray | None:
    """The maps of images that are evaluated, without augmentation."""
    if part is None:
        return None
    file = BankFile("unchanged", len(part), _unchanged(state, compute, part.images))
    return read_bank(bank_directory(_key(state, part.images)), [file], progress)["unchanged"]


def noise_bank(state: State, split: Split) -> Bank | None:
    """A bank of noise with the right shapes, to measure the time of a step; None if the whole network is trained."""
    if not state.model.takes_maps:
        return None
    shape = _frozen_function(state, 1)(to_tensor(split.images[:1], state.device)).shape[1:]
    noise = np.random.default_rng(0).random((len(split.images), *shape)).astype(np.float16)
    method = state.objective.method
    views = {name: [noise] for name in (*method.labeled_views, *method.unlabeled_views)}
    evaluated = (None if part is None else noise[: len(part)] for part in (split.validation, split.test))
    return Bank(views, *evaluated)


def measure_views(state: State, split: Split) -> float:
    """The seconds that one view of each kind takes for an image, measured on a batch after another to warm up."""
    method = state.objective.method
    compute = _frozen_function(state, MANY)
    seconds = 0.0
    for name in {*method.labeled_views, *method.unlabeled_views}:
        batches = _views(state, compute, split.images, name, 0)()
        next(batches)
        started = time.perf_counter()
        count = len(next(batches))
        seconds += (time.perf_counter() - started) / count
    return seconds


def _views(
    state: State, compute: Compute, images: np.ndarray, name: str, index: int
) -> Callable[[], Iterator[np.ndarray]]:
    """The maps of one view of every image. The draws of a batch depend on its position and the view alone."""
    policy: Policy = state.views[name]

    def batches() -> Iterator[np.ndarray]:
        for start in range(0, len(images), AT_ONCE):
            batch = to_tensor(images[start : start + AT_ONCE], state.device)
            height, width = batch.shape[2:]
            generator = torch_generator(index, Purpose.BANK, start, sum(name.encode()))
            yield compute(policy.apply(batch, policy.draw(len(batch), height, width, generator)))

    return batches


def _unchanged(state: State, compute: Compute, images: np.ndarray) -> Callable[[], Iterator[np.ndarray]]:
    """The maps of every image, without augmentation."""

    def batches() -> Iterator[np.ndarray]:
        for start in range(0, len(images), AT_ONCE):
            yield compute(to_tensor(images[start : start + AT_ONCE], state.device))

    return batches


class _Lower(nn.Module):
    """The frozen part of a model as a module."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model.maps(images)


def _frozen_function(state: State, count: int) -> Compute:
    """The frozen part of the network as a function; `count` images are to be expected."""
    lower = accelerated(_Lower(state.ema).eval(), count)

    @torch.no_grad()
    def compute(images: Tensor) -> np.ndarray:
        maps: np.ndarray = lower(images).cpu().numpy()
        return maps

    return compute


def _key(state: State, images: np.ndarray, settings: ViewSettings | None = None) -> str:
    """A checksum of everything that a bank depends on: views, frozen weights and images."""
    views = None if settings is None else sorted(asdict(settings).items())
    frozen = {name: value for name, value in state.model.state_dict().items() if name in state.model.frozen_names()}
    weights = (value.float().cpu().numpy() for _, value in sorted(frozen.items()))
    return bank_key(f"{FORMAT} {views} {state.model.tune}", *weights, images)
