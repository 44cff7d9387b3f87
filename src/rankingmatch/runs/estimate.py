"""How long a run will take, from a few steps measured on noise of the right shape: no data are needed."""

import time
from dataclasses import replace

import numpy as np
import torch

from rankingmatch.augment import ViewSettings
from rankingmatch.core.distributed import world_size
from rankingmatch.core.errors import DivergedError, is_out_of_memory
from rankingmatch.data import Dataset, DataSettings, Images, Split, make_split
from rankingmatch.methods import Method, make_method
from rankingmatch.networks import NetworkSettings, predict_logits
from rankingmatch.runs.config import Config, Plan
from rankingmatch.runs.speeds import SHORT_RUN, Speed, remember_speed
from rankingmatch.training.banks import measure_views, noise_bank
from rankingmatch.training.loop import train
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import State, initial_state

ENOUGH_SECONDS = 2.0  # spent on measuring
MOST_STEPS = 6
EVALUATED_AT_ONCE = 512
SLOW_STEP = 10.0  # seconds: a slower step is measured with a sixteenth of its batch only


def estimate_run(plan: Plan) -> float | None:
    """The seconds that training will take on this machine, without reading the images.

    None if it is not worth measuring or cannot be measured: for a short run, with several processes, or for a model
    that does not fit into memory or diverges at once.
    """
    config = plan.config
    if config.training.last_step < SHORT_RUN or world_size() > 1:
        return None
    try:
        return total_seconds(config, measure(plan))
    except DivergedError:
        return None
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def total_seconds(config: Config, speed: Speed) -> float:
    """Seconds of a run, given those of a step and of an evaluation."""
    settings = config.training
    evaluations = -(-settings.last_step // settings.evaluation_interval)
    return settings.last_step * speed.step + evaluations * speed.evaluation


def measure(plan: Plan) -> Speed:
    """Seconds of a training step and of an evaluation, measured and remembered."""
    config = plan.config
    if config.execution.threads:
        torch.set_num_threads(config.execution.threads)
    split = _noise_split(plan)
    whole = config.training.batch_size
    part = max(1, whole // 16)
    seconds, state = _step(config, split, part)
    step = seconds * whole / part
    if step < SLOW_STEP:
        step, state = _step(config, split, whole)
    speed = Speed(step, _evaluation(split, state, plan.source.evaluated))
    remember_speed(plan, speed)
    return speed


def seconds_per_view(plan: Plan) -> float:
    """Seconds to precompute one view of each kind of every training image; 0 if nothing is precomputed."""
    config, split = plan.config, _noise_split(plan)
    if config.network.tune == "all":
        return 0.0
    method = make_method(config.method, config.hyperparameters)
    state = initial_state(split, method, config.network, config.views, config.training, config.device())
    return measure_views(state, split) * (plan.source.training or 0)


def _noise_split(plan: Plan) -> Split:
    """Noise of the shape of a dataset."""
    source, size = plan.source, plan.config.data.image_size
    shape = source.shape if size is None else (size, size, source.shape[2])
    return noise_split(shape, source.classes, max(4 * source.classes, EVALUATED_AT_ONCE))


def noise_split(shape: tuple[int, ...], classes: int, count: int) -> Split:
    """`count` images of noise (height, width, channels), one of each class labeled."""
    labels = np.arange(count) % classes
    images = np.random.default_rng(0).integers(0, 256, (count, *shape)).astype(np.uint8)
    names = tuple(map(str, range(classes)))
    return make_split(Dataset(names, Images(images, labels)), DataSettings(labels=classes), seed=0)


def _step(config: Config, split: Split, batch_size: int) -> tuple[float, State]:
    """The median seconds of a few steps, and the state after them."""
    method = make_method(config.method, config.hyperparameters)
    settings = replace(config.training, batch_size=batch_size)
    return measure_step(split, method, config.network, config.views, settings, config.device())


def measure_step(
    split: Split,
    method: Method,
    network: NetworkSettings,
    views: ViewSettings,
    settings: TrainSettings,
    device: torch.device,
) -> tuple[float, State]:
    """The median seconds of a few steps, with a bank of noise if a part of the network is frozen; the last state."""
    settings = replace(settings, stop_after=MOST_STEPS, evaluate_every=MOST_STEPS + 1, log_every=1)
    settings = replace(settings, final_head="trained")  # only steps are measured
    state = initial_state(split, method, network, views, settings, device)
    state.bank = noise_bank(state, split)
    times: list[float] = []
    for record in train(state, split, settings):
        times.append(record.step_seconds)
        if sum(times) > ENOUGH_SECONDS:
            break
    # The first step includes warming up: it counts only if it is the only one.
    return float(np.median(times[1:] or times)), state


def _evaluation(split: Split, state: State, images: int) -> float:
    """Seconds to evaluate this many images, extrapolated from one batch."""
    started = time.perf_counter()
    inputs = split.images
    if state.bank is not None:  # evaluated without the frozen part of the network
        inputs = next(iter(state.bank.views.values()))[0].transpose(0, 2, 3, 1)
    predict_logits(state.ema, inputs[:EVALUATED_AT_ONCE], state.device)
    return (time.perf_counter() - started) / EVALUATED_AT_ONCE * images
