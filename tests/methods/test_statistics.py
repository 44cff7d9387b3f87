"""Moving averages of predictions follow the model within a run of any length."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError
from rankingmatch.methods import Batch, Context, Method, Task, make_method
from rankingmatch.methods.freematch import FreeMatch
from rankingmatch.methods.softmatch import SoftMatch
from rankingmatch.networks import Output
from rankingmatch.runs.photographs import FINE_TUNING_HYPERPARAMETERS

CLASSES = 10


class Confident(nn.Module):
    """A network that gives every image its own class with a probability of 0.95, and the others equal shares."""

    def forward(self, images: Tensor) -> Output:
        logits = torch.full((len(images), CLASSES), math.log(0.05 / 9), dtype=torch.float64)
        logits[torch.arange(len(images)), torch.arange(len(images)) % CLASSES] = math.log(0.95)
        return Output(logits.requires_grad_(), logits)


def after(name: str, taken: int, steps: int, **hyperparameters: Any) -> Method:
    """The method after `taken` steps of a run of `steps`."""
    method = make_method(name, hyperparameters)
    method.prepare(Task(CLASSES, CLASSES, 20))
    method.double()
    images = torch.zeros(20, 1, 1, 1, dtype=torch.uint8)
    batch = Batch((images,), torch.arange(20) % CLASSES, (images, images), torch.arange(20))
    model = Confident()
    for step in range(taken):
        method(model, batch, Context(step, steps, model, torch.Generator()))
    return method


def averaged(value: float, start: float, decay: float, times: int) -> float:
    for _ in range(times):
        start = decay * start + (1 - decay) * value
    return start


@pytest.mark.parametrize(
    ("steps", "given", "decay"),
    [
        (131_072, {}, 0.999),
        (2**20, {}, 0.999),
        (13_107, {}, 1 - 0.001 * 131_072 / 13_107),
        (1000, {}, 0.9),
        (1000, {"statistics_decay": 0.999}, 0.999),
        (131_072, {"statistics_decay": 0.5}, 0.5),
    ],
)
def test_the_decay_follows_the_length_of_the_run_unless_it_is_given(
    steps: int, given: dict[str, float], decay: float
) -> None:
    freematch, softmatch = after("freematch", 60, steps, **given), after("softmatch", 60, steps, **given)
    assert isinstance(freematch, FreeMatch)
    assert isinstance(softmatch, SoftMatch)
    expected = averaged(0.95, 0.1, decay, 60)
    assert freematch.confidence.item() == pytest.approx(expected, rel=1e-6)
    assert softmatch.mean.item() == pytest.approx(expected, rel=1e-6)
    assert softmatch.variance.item() == pytest.approx(averaged(0.0, 1.0, decay, 60), rel=1e-6, abs=1e-12)


def test_a_short_run_reaches_the_true_confidence_within_a_tenth_of_it() -> None:
    """Were the decay 0.999, the threshold would be 0.18 after 100 of 1,000 steps, and every weight near 1."""
    freematch, softmatch = after("freematch", 100, 1000), after("softmatch", 100, 1000)
    assert isinstance(freematch, FreeMatch)
    assert isinstance(softmatch, SoftMatch)
    assert freematch.confidence.item() == pytest.approx(0.95, abs=1e-3)
    assert softmatch.mean.item() == pytest.approx(0.95, abs=1e-3)
    assert softmatch.variance.item() < 1e-4


def test_fine_tuning_keeps_its_decay() -> None:
    assert FINE_TUNING_HYPERPARAMETERS["statistics_decay"] == 0.95


@pytest.mark.parametrize("bounds", [(0.9, 0.95), (0.0, 0.15), (0.0, 1.0), (0.97, 0.99)])
def test_the_global_threshold_of_freematch_has_bounds(bounds: tuple[float, float]) -> None:
    low, high = bounds
    method = after("freematch", 3, 131_072, lowest_threshold=low, highest_threshold=high, statistics_decay=0.97)
    assert isinstance(method, FreeMatch)
    threshold = 0.1
    for _ in range(3):
        threshold = min(max(0.97 * threshold + 0.03 * 0.95, low), high)
    assert method.confidence.item() == pytest.approx(threshold)
    assert low <= method.confidence.item() <= high


def test_bounds_that_exclude_everything_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"lowest_threshold is 0\.9, above highest_threshold"):
        after("freematch", 0, 10, lowest_threshold=0.9, highest_threshold=0.8)


class Skewed(nn.Module):
    """A network that predicts the first class with a probability of 0.91 for every image."""

    def forward(self, images: Tensor) -> Output:
        logits = torch.full((len(images), CLASSES), math.log(0.01), dtype=torch.float64)
        logits[:, 0] = math.log(0.91)
        return Output(logits.requires_grad_(), logits)


def test_uniform_alignment_starts_from_the_first_batch() -> None:
    """All predictions equal their average: aligned, they are uniform already in the first step."""
    method = make_method("softmatch", {})
    assert isinstance(method, SoftMatch)
    method.prepare(Task(CLASSES, CLASSES, 20))
    method.double()
    images = torch.zeros(20, 1, 1, 1, dtype=torch.uint8)
    batch = Batch((images,), torch.zeros(20, dtype=torch.long), (images, images), torch.arange(20))
    method(Skewed(), batch, Context(0, 131_072, Skewed(), torch.Generator()))
    assert method.probability.tolist() == pytest.approx([0.91] + [0.01] * 9)
    # μ = 0.999 · 1/10 + 0.001 · c, where the aligned confidence c is 1/10.
    assert method.mean.item() == pytest.approx(0.1, rel=1e-7)
