"""Banks of a state: the frozen part of its network, computed once for several views of every image."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.augment import Policy, ViewSettings
from rankingmatch.core.randomness import Purpose, torch_generator
from rankingmatch.data import Progress, Split, no_progress
from rankingmatch.data.bank import Bank, BankFile, bank_directory, bank_key, read_bank
from rankingmatch.networks import Classifier, to_tensor
from rankingmatch.networks.onnx import accelerated
from rankingmatch.training.state import State

AT_ONCE = 64  # images
FORMAT = 1  # of a bank, part of its key


@dataclass(frozen=True)
class View:
    """A view of images for a bank, as a function of their position; without a policy, the images themselves."""

    name: str
    index: int = 0
    policy: Policy | None = None

    @property
    def file(self) -> str:
        """The name of its file."""
        return self.name if self.policy is None else f"{self.name}-{self.index}"

    def apply(self, images: Tensor, start: int) -> Tensor:
        """The views of a batch. The draws depend on the position of its first image and on the view alone."""
        if self.policy is None:
            return images
        generator = torch_generator(self.index, Purpose.BANK, start, sum(self.name.encode()))
        height, width = images.shape[2:]
        return self.policy.apply(images, self.policy.draw(len(images), height, width, generator))


class Frozen:
    """The frozen part of a network as a function, in ONNX Runtime if so many images are worth it.

    Its outputs depend on the model, the device and the count of images alone: a copy in another process computes the
    same.
    """

    def __init__(self, model: Classifier, device: torch.device, count: int) -> None:
        self.device = device
        self._lower = accelerated(_Lower(model).eval(), count)
        self._arguments = model, device, count

    def __reduce__(self) -> tuple[type["Frozen"], tuple[Classifier, torch.device, int]]:
        return Frozen, self._arguments  # a converted network cannot be copied

    @torch.no_grad()
    def maps(self, images: Tensor) -> np.ndarray:
        """The maps of some images."""
        maps: np.ndarray = self._lower(images).cpu().numpy()
        return maps

    def batches(self, view: View, images: np.ndarray, first: int = 0) -> Iterator[np.ndarray]:
        """The maps of a view of images, batch by batch, where the first image has the position `first`."""
        for start in range(0, len(images), AT_ONCE):
            batch = to_tensor(images[start : start + AT_ONCE], self.device)
            yield self.maps(view.apply(batch, first + start))


# How the batches of an array are computed, in order: here (`Frozen.batches`), or on other machines, which are connected
# for as long as a bank is made.
Compute = Callable[[Frozen, View, np.ndarray], Iterator[np.ndarray]]
Computer = Callable[[], AbstractContextManager[Compute]]


def computed_here() -> AbstractContextManager[Compute]:
    """Compute a bank in this process."""
    return nullcontext(Frozen.batches)


def make_bank(
    state: State,
    split: Split,
    settings: ViewSettings,
    progress: Progress = no_progress,
    computer: Computer = computed_here,
) -> Bank | None:
    """The bank of a state, computed or read from the cache; None if the whole network is trained.

    It depends on the images, the frozen weights and the settings of the views, but not on the seed: runs share it.
    Images that are evaluated have a bank of their own, because the seed may choose them.
    """
    if not state.model.takes_maps:
        return None
    names = sorted({*state.objective.method.labeled_views, *state.objective.method.unlabeled_views})
    views = [View(name, index, state.views[name]) for index in range(settings.bank_views) for name in names]
    evaluated = [None if part is None else part.images for part in (split.validation, split.test)]
    count = len(views) * len(split.images) + sum(len(images) for images in evaluated if images is not None)
    frozen = Frozen(state.ema, state.device, count)
    values = state.model.state_dict()
    weights = [values[name].float().cpu().numpy() for name in sorted(state.model.frozen_names() & values.keys())]
    with computer() as compute:

        def read(images: np.ndarray, views: list[View], settings: ViewSettings | None) -> dict[str, np.ndarray]:
            files = [BankFile(view.file, len(images), partial(compute, frozen, view, images)) for view in views]
            described = None if settings is None else sorted(asdict(settings).items())
            key = bank_key(f"{FORMAT} {described} {state.model.tune}", *weights, images)
            return read_bank(bank_directory(key), files, progress)

        arrays = read(split.images, views, settings)
        parts = [
            None if images is None else read(images, [View("unchanged")], None)["unchanged"] for images in evaluated
        ]
    return Bank({name: [arrays[f"{name}-{index}"] for index in range(settings.bank_views)] for name in names}, *parts)


class _Lower(nn.Module):
    """The frozen part of a model as a module."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model.maps(images)
