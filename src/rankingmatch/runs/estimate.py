"""How long a run will take, from a few steps measured on noise of the right shape: no data are needed."""

import time
from dataclasses import replace

import numpy as np
import torch

from rankingmatch.runs.config import Config
from rankingmatch.data import Dataset, DataSettings, Images, Split, make_split
from rankingmatch.core.distributed import count
from rankingmatch.core.errors import DivergedError
from rankingmatch.methods import make_method
from rankingmatch.networks import outputs
from rankingmatch.training.state import State, initial_state
from rankingmatch.training.loop import train

ENOUGH_SECONDS = 2.0  # of measuring
MOST_STEPS = 6
EVALUATED_AT_ONCE = 512
SHORT_RUN = 100  # steps: a shorter run is over before it is estimated
SLOW_STEP = 10.0  # seconds: such a step is not measured whole, but from a sixteenth of its batch


def estimate_run(config: Config) -> float | None:
    """The seconds that training will take here, without reading the images.

    None where that is not worth measuring, or cannot be measured beforehand: a short run, one of several processes,
    a model that does not fit into memory or diverges at once.
    """
    if config.training.last_step < SHORT_RUN or count() > 1:
        return None
    try:
        return total_seconds(config, *measure(config))
    except (torch.OutOfMemoryError, DivergedError):
        return None


def total_seconds(config: Config, step: float, evaluation: float) -> float:
    """Seconds of a run whose steps and evaluations take this long."""
    settings = config.training
    evaluations = -(-settings.last_step // settings.evaluation_interval)
    return settings.last_step * step + evaluations * evaluation


def measure(config: Config) -> tuple[float, float]:
    """Seconds of a training step and of an evaluation on all validation and test images."""
    if config.execution.threads:
        torch.set_num_threads(config.execution.threads)
    split = _stand_in(config)
    whole = config.training.batch_size
    part = max(1, whole // 16)
    seconds, state = _step(config, split, part)
    step = seconds * whole / part
    if step < SLOW_STEP:
        step, state = _step(config, split, whole)
    return step, _evaluation(config, split, state)


def _stand_in(config: Config) -> Split:
    """Noise of the shape of a dataset."""
    known = config.source
    size = config.data.image_size
    shape = known.shape if size is None else (size, size, known.shape[2])
    labels = np.arange(max(4 * known.classes, EVALUATED_AT_ONCE)) % known.classes
    images = np.random.default_rng(0).integers(0, 256, (len(labels), *shape)).astype(np.uint8)
    classes = tuple(map(str, range(known.classes)))
    return make_split(Dataset(classes, Images(images, labels)), DataSettings(labels=known.classes), seed=0)


def _step(config: Config, split: Split, batch_size: int) -> tuple[float, State]:
    """The median seconds of a few steps, and the state after them."""
    device = config.execution.torch_device()
    settings = replace(
        config.training, batch_size=batch_size, stop_after=MOST_STEPS, evaluate_every=MOST_STEPS + 1, log_every=1
    )
    method = make_method(config.method, config.hyperparameters)
    state = initial_state(split, method, config.network, config.views, settings, device)
    times: list[float] = []
    for record in train(state, split, settings):
        times.append(record.step_seconds)
        if sum(times) > ENOUGH_SECONDS:
            break
    # The first step warms up: it counts only if there is no other.
    return float(np.median(times[1:] or times)), state


def _evaluation(config: Config, split: Split, state: State) -> float:
    """Seconds for all images that are evaluated, from those of one batch."""
    started = time.perf_counter()
    for output in outputs(state.ema, split.images[:EVALUATED_AT_ONCE], state.device):
        output.logits.sum().item()
    return (time.perf_counter() - started) / EVALUATED_AT_ONCE * config.source.evaluated
