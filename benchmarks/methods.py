"""What a training step costs beyond the network passes it needs, for every method.

Each method takes a step; every call of the network in it is noted (how many images, with or without a graph, whether
the images themselves need a gradient). The same passes on the bare network, with their backward, are the floor. Steps
and floors take turns in one process, and the median of their ratios counts: load from elsewhere hits both alike.

    python benchmarks/methods.py                 # wrn-28-2 on 32×32×3, one thread
    python benchmarks/methods.py --methods rankingmatch-bm vat --rounds 9
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.config import resolve
from rankingmatch.data import Dataset, DataSettings, Images, Split, make_split
from rankingmatch.methods import METHODS, make_method
from rankingmatch.state import State, TrainSettings, initial_state
from rankingmatch.train import train

CPU = torch.device("cpu")
REACH = 1.10


@dataclass(frozen=True)
class Pass:
    """One call of the network."""

    images: int
    graph: bool
    input_gradient: bool
    training: bool


def noise(side: int, count: int = 2048, classes: int = 10) -> Split:
    """A dataset of noise."""
    images = np.random.default_rng(0).integers(0, 256, (count, side, side, 3)).astype(np.uint8)
    dataset = Dataset(tuple(map(str, range(classes))), Images(images, np.arange(count) % classes))
    return make_split(dataset, DataSettings(labels=10 * classes), seed=0)


def steps_of(state: State, split: Split, settings: TrainSettings) -> Callable[[], object]:
    """A function that takes the next step: batch, views, passes, losses, SGD, EMA."""
    records = train(state, split, settings)
    return lambda: next(records)


def passes_of(state: State, step: Callable[[], object]) -> list[Pass]:
    """The calls of model and teacher in one step."""
    seen: list[Pass] = []

    def note(module: nn.Module, inputs: tuple[Tensor]) -> None:
        (images,) = inputs
        seen.append(Pass(len(images), torch.is_grad_enabled(), images.requires_grad, module.training))

    handles = [module.register_forward_pre_hook(note) for module in (state.model, state.ema)]
    step()
    for handle in handles:
        handle.remove()
    return seen


def take_passes(model: nn.Module, passes: list[Pass], images: Tensor) -> None:
    """The bare passes, and one backward for all that have a graph."""
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


def seconds(work: Callable[[], object]) -> float:
    """The CPU time of a call, which other processes change less than the wall time."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--network", default="wrn-28-2")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    split = noise(given.side)
    images = torch.from_numpy(np.ascontiguousarray(split.images[:64].transpose(0, 3, 1, 2)))
    print(f"| method | passes (images, * without a graph) | step | bare passes | ratio | ≤ {REACH:.2f} |")
    print("|---|---|---|---|---|---|")
    for name in given.methods:
        settings = {"network": given.network, "batch_size": given.batch_size, "steps": 10_000, "log_every": 1000}
        config = resolve("cifar10", name, settings)
        method = make_method(name, config.hyperparameters)
        state = initial_state(split, method, config.network, config.views, config.training, CPU)
        step = steps_of(state, split, config.training)
        passes = passes_of(state, step)
        bare = copy.deepcopy(state.model)
        ratios, times = [], []
        for _ in range(given.rounds):
            floor, whole = seconds(partial(take_passes, bare, passes, images)), seconds(step)
            ratios.append(whole / floor)
            times.append((1000 * whole, 1000 * floor))
        ratio = statistics.median(ratios)
        whole, floor = (statistics.median(column) for column in zip(*times, strict=True))
        words = " + ".join(f"{one.images}{'' if one.graph else '*'}" for one in passes)
        verdict = "yes" if ratio <= REACH else "no"
        print(f"| {name} | {words} | {whole:.0f} ms | {floor:.0f} ms | {ratio:.3f} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
