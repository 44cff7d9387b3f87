"""A training step, compared with its bare network passes and with a step of a typical implementation."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from measuring import CPU, Row, Work, in_turns, milliseconds, ratio
from peers import ema_loop, pil_strong, pil_views, pil_weak
from rankingmatch.augment import RandAugment
from rankingmatch.data import Dataset, DataSettings, Images, Split, make_split
from rankingmatch.losses import batch_mean_triplet, masked_cross_entropy
from rankingmatch.methods import make_method
from rankingmatch.methods.targets import pseudo_label
from rankingmatch.networks import to_tensor
from rankingmatch.runs.config import Config, resolve
from rankingmatch.training.loop import train
from rankingmatch.training.state import State, initial_state, make_optimizer

NEVER = 1_000_000


@dataclass(frozen=True)
class Pass:
    """One call of the network."""

    images: int
    graph: bool
    input_gradient: bool
    training: bool


@dataclass(frozen=True)
class Case:
    """A run that can take steps."""

    config: Config
    split: Split
    state: State
    step: Work

    @property
    def images(self) -> Tensor:
        """A few images as the network's input."""
        return to_tensor(self.split.images[:64], CPU)


def noise(side: int, count: int = 2048, classes: int = 10) -> Dataset:
    """A dataset of noise."""
    images = np.random.default_rng(0).integers(0, 256, (count, side, side, 3)).astype(np.uint8)
    return Dataset(tuple(map(str, range(classes))), Images(images, np.arange(count) % classes))


def make_case(dataset: Dataset, name: str, method: str, given: Mapping[str, Any]) -> Case:
    """A run on a dataset with the default settings of the dataset called `name`, except for those given."""
    config = resolve(name, method, {"log_every": 10, "evaluate_every": NEVER, **given}).config
    split = make_split(dataset, DataSettings(labels=10 * len(dataset.classes)), seed=0)
    method_module = make_method(method, config.hyperparameters)
    state = initial_state(split, method_module, config.network, config.views, config.training, CPU)
    records = train(state, split, config.training)
    return Case(config, split, state, lambda: next(records))


def wide_case(method: str = "rankingmatch-bm", batch_size: int = 16, side: int = 32, **given: Any) -> Case:
    """wrn-28-2 on 32×32×3."""
    settings = {"network": "wrn-28-2", "batch_size": batch_size, "steps": NEVER, **given}
    return make_case(noise(side), "cifar10", method, settings)


def digits_case(method: str = "rankingmatch-bm", **given: Any) -> Case:
    """The defaults of digits."""
    dataset = resolve("digits", method, {}).source.load()
    return make_case(dataset, "digits", method, {"steps": NEVER, **given})


def passes_of(case: Case) -> list[Pass]:
    """The calls of the model and the teacher in one step."""
    seen: list[Pass] = []

    def record(module: nn.Module, inputs: tuple[Tensor]) -> None:
        (images,) = inputs
        seen.append(Pass(len(images), torch.is_grad_enabled(), images.requires_grad, module.training))

    handles = [module.register_forward_pre_hook(record) for module in (case.state.model, case.state.ema)]
    case.step()
    for handle in handles:
        handle.remove()
    return seen


def take_passes(model: nn.Module, passes: list[Pass], images: Tensor) -> None:
    """Run the bare passes, and one backward for all that have a graph."""
    total = torch.zeros(())
    model.requires_grad_()
    for one in passes:
        model.train(one.training)
        views = images[torch.arange(one.images) % len(images)]
        with torch.set_grad_enabled(one.graph):
            if one.input_gradient:
                views = views.float().requires_grad_()
                torch.autograd.grad(model(views).logits.sum(), views)
            else:
                logits = model(views).logits
                if one.graph:
                    total = total + logits.sum()
    model.train()
    model.zero_grad(set_to_none=True)
    total.backward()


def bare_work(case: Case) -> tuple[list[Pass], Work]:
    """The passes of a step, and a function that runs them on a copy of the network."""
    passes = passes_of(case)
    return passes, partial(take_passes, copy.deepcopy(case.state.model), passes, case.images)


class TypicalImplementation:
    """RankingMatch-BM as it is typically implemented.

    One joint pass with a graph over labeled, weak and strong views of images in (n, c, h, w) order, PIL augmentation,
    default SGD, the EMA of the weights tensor by tensor. The losses are ours, since they are not compared here.
    """

    def __init__(self, case: Case) -> None:
        self.case, settings = case, case.config.training
        objective = copy.deepcopy(case.state.objective)
        objective.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.model, self.ema = objective.model, copy.deepcopy(objective.model)
        self.optimizer = make_optimizer(objective, settings)
        self.labeled, self.unlabeled = settings.batch_size, settings.batch_size * settings.mu
        self.random = np.random.default_rng(0)
        strong = case.state.views["strong"]
        assert isinstance(strong, RandAugment)
        self.weak: Callable[..., Any] = partial(pil_weak, policy=strong.weak)
        self.strong: Callable[..., Any] = partial(pil_strong, policy=strong)

    def step(self) -> None:
        """Sampling, views, pass, losses, SGD, EMA."""
        split = self.case.split
        rows = self.random.choice(split.labeled_rows, self.labeled)
        labels = torch.from_numpy(split.labels[rows]).long()
        (labeled,) = pil_views(split.images[rows], self.weak)
        others = split.images[self.random.choice(split.unlabeled_rows, self.unlabeled)]
        views = torch.cat([labeled, *pil_views(others, self.weak, self.strong)])
        model: Any = self.model
        logits = model.backbone((views - model.mean) / model.std)[0]
        labeled_logits, weak, strong = logits.split([self.labeled, self.unlabeled, self.unlabeled])
        pseudo = pseudo_label(weak.detach(), 0.95)
        confident = pseudo.confident
        rank = batch_mean_triplet(labeled_logits, labels) + batch_mean_triplet(
            strong[confident], pseudo.labels[confident]
        )
        loss = F.cross_entropy(labeled_logits, labels) + masked_cross_entropy(strong, pseudo.labels, confident) + rank
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        ema_loop(self.ema, self.model, 0.999)


def rows(rounds: int = 5) -> list[Row]:
    """The rows of the table."""
    torch.manual_seed(0)
    table = []
    for case, title, target, more in (
        (wide_case(), "`wrn-28-2`, 32×32×3", 1.05, 1),
        (digits_case(), "the digits default", 1.25, 8),
    ):
        _, bare = bare_work(case)
        times = in_turns({"step": case.step, "bare": bare, "other": TypicalImplementation(case).step}, more * rounds)
        step = milliseconds(times, "step")
        settings = case.config.training
        what = f"step of `rankingmatch-bm`, {title}, B={settings.batch_size}, μ={settings.mu}"
        table += [
            Row(
                f"{what}, against its bare passes",
                target,
                ratio(times, "step", "bare"),
                at_least=False,
                detail=f"{step}, {milliseconds(times, 'bare')}",
            ),
            Row(
                f"{what}, against a step of a typical implementation",
                1.6,
                ratio(times, "other", "step"),
                detail=f"{step}, {milliseconds(times, 'other')}",
            ),
        ]
    return table
