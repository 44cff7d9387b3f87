"""How fast this machine is: steps that were measured are remembered, and those of other networks follow from them."""

import contextlib
import json
import math
import statistics
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import platformdirs
import torch
from torch.overrides import TorchFunctionMode

from rankingmatch.core.atomic import write_json
from rankingmatch.core.devices import computes_bfloat16
from rankingmatch.core.untrusted import Between, check_value, read_bytes
from rankingmatch.methods import make_method
from rankingmatch.networks import freeze, make_classifier
from rankingmatch.networks.classifier import Tune
from rankingmatch.runs.config import Config, Plan

__all__ = ["Speed", "approximate_speed", "remember_speed", "remembered_speed", "speed_of_run"]

# Floating-point operations per second and core of training a Wide ResNet in float32, measured on a machine with 2
# cores. Used until a similar step has been measured.
USUAL_SPEED = 5e10
BFLOAT16_SPEED = 2  # times that of float32, where there are instructions for it
SLOW_PRECISION = 0.25  # times that of float32, for bfloat16 and float16 without such instructions
STEP_OVERHEAD = 0.005  # seconds of a step that do not depend on the size of the network
MOST_DIFFERENT = 16  # times the operations of a measured step: beyond, it says nothing about a step
SHORT_RUN = 100  # steps: a shorter run needs no estimate, and its first steps, which are slower, count too much
MOST_BYTES = 2**20
FORWARD_AND_BACKWARD = 3  # passes: the backward pass costs two
LEAST = 1e-9
Positive = Annotated[float, Between(LEAST, 1e24)]


class Speed(NamedTuple):
    """Seconds of a training step, and of an evaluation on all validation and test images."""

    step: float
    evaluation: float


def remember_speed(plan: Plan, speed: Speed) -> None:
    """Add a measurement to the table of this machine; without a place to write, it is forgotten."""
    operations = _step_operations(plan)
    if operations is None:
        return
    entries = {**_table(), _key(plan): (*speed, operations)}
    with contextlib.suppress(OSError):
        _path().parent.mkdir(parents=True, exist_ok=True)
        write_json(_path(), entries)


def remembered_speed(plan: Plan) -> Speed | None:
    """What was measured on this machine for exactly these settings; None if nothing was."""
    entry = _table().get(_key(plan))
    return None if entry is None else Speed(*entry[:2])


def speed_of_run(history: Sequence[dict[str, Any]]) -> Speed | None:
    """The median seconds of a step and of an evaluation in the history of a run; None if they were not recorded."""
    speeds, start = [], {"step": 0, "seconds": 0.0}
    for before, line in pairwise([start, *(line for line in history if line.get("seconds"))]):
        if step := line.get("step_seconds"):
            trained = step * (line["step"] - before["step"])
            speeds.append(Speed(step, max(LEAST, line["seconds"] - before["seconds"] - trained)))
    return Speed(*map(statistics.median, zip(*speeds, strict=True))) if speeds else None


def approximate_speed(plan: Plan) -> Speed | None:
    """The operations of a step, at the speed of the measurement whose step has the most similar number of operations.

    It must have the same device, precision and number of threads. Without a similar one, the speed is that of a usual
    CPU; None for other devices, and for networks whose operations cannot be counted.
    """
    operations, evaluated = _step_operations(plan), _pass_operations(plan)
    if operations is None or evaluated is None:
        return None
    if (speed := _similar_speed(plan.config, operations) or _usual_speed(plan.config)) is None:
        return None
    return Speed(STEP_OVERHEAD + operations / speed, evaluated * plan.source.evaluated / speed)


def _similar_speed(config: Config, operations: float) -> float | None:
    """Operations per second of the most similar step that was measured; a small network does fewer than a large one."""

    def difference(counted: float) -> float:
        return abs(math.log(counted / operations))

    machine = _machine(config)
    alike = [(difference(entry[2]), entry) for key, entry in _table().items() if key.endswith(machine)]
    least, (seconds, _, counted) = min(alike, default=(math.inf, (1.0, 1.0, 1.0)))
    if least > math.log(MOST_DIFFERENT):
        return None
    return counted / max(seconds - STEP_OVERHEAD, seconds / 2)


def _usual_speed(config: Config) -> float | None:
    """Operations per second of a usual CPU."""
    device, precision = config.device(), config.training.precision
    if device.type != "cpu":
        return None
    factor = 1.0
    if precision != "float32":
        factor = BFLOAT16_SPEED if precision == "bfloat16" and computes_bfloat16(device) else SLOW_PRECISION
    return USUAL_SPEED * _threads(config) * factor


def _step_operations(plan: Plan) -> float | None:
    """The floating-point operations of a step: forward and backward through the trained part, for every view."""
    config = plan.config
    method = make_method(config.method, config.hyperparameters)
    views = len(method.labeled_views) + config.training.mu * len(method.unlabeled_views)
    operations = _pass_operations(plan)
    if operations is None:
        return None
    return FORWARD_AND_BACKWARD * operations * config.training.batch_size * views


def _pass_operations(plan: Plan) -> float | None:
    """The floating-point operations of the trained part of the network for one image, without its frozen part."""
    config, (height, width, channels) = plan.config, plan.source.shape
    size = config.data.image_size
    shape = (channels, height, width) if size is None else (channels, size, size)
    return _operations(config.network.network, config.network.tune, plan.source.classes, shape)


@cache
def _operations(network: str, tune: Tune, classes: int, shape: tuple[int, int, int]) -> float | None:
    """Counted in a pass through a network whose weights have no values yet; None if it cannot be made."""
    for images in (0, 1):  # an empty batch needs no memory, but not every network takes one
        with contextlib.suppress(Exception):  # a network of one's own may do anything
            return _counted_operations(network, tune, classes, torch.zeros(images, *shape, dtype=torch.uint8))
    return None


def _counted_operations(network: str, tune: Tune, classes: int, images: torch.Tensor) -> float:
    with torch.device("cpu"), torch.no_grad(), _Counter() as counter:
        model = make_classifier(network, classes, channels=images.shape[1]).eval()
        freeze(model, tune)
        if model.takes_maps:
            model.maps(images)
        frozen = counter.operations
        model(images)
        return float(counter.operations - 2 * frozen)


class _Counter(TorchFunctionMode):
    """Counts the operations of convolutions and linear layers for one image, and leaves weights uninitialized.

    torch has a counter of its own, but using it, or the meta device, imports the compiler: a second, and 80 MB.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0.0

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func.__name__.endswith(("normal_", "uniform_")):
            return args[0] if args else kwargs["tensor"]
        result = func(*args, **(kwargs or {}))
        if func.__name__ in ("conv2d", "linear"):
            weight = args[1]
            self.operations += 2 * math.prod(result.shape[1:]) * weight.numel() / len(weight)
        return result


def _key(plan: Plan) -> str:
    config, source = plan.config, plan.source
    size = config.data.image_size
    sides = "×".join(map(str, source.shape if size is None else (size, size, source.shape[2])))
    training = config.training
    batch = f"B {training.batch_size}, μ {training.mu}, tune {config.network.tune}"
    return (
        f"{config.network.network}, {sides}, {source.classes} classes, {source.evaluated} evaluated, {config.method}, "
        f"{batch}{_machine(config)}"
    )


def _machine(config: Config) -> str:
    return f"; {config.device()}, {config.training.precision}, threads {_threads(config)}"


def _threads(config: Config) -> int:
    return config.execution.threads or torch.get_num_threads()


def _path() -> Path:
    return platformdirs.user_cache_path("rankingmatch") / "speeds.json"


def _table() -> dict[str, tuple[float, float, float]]:
    """The measurements: seconds of a step and of an evaluation, and the operations of a step.

    A damaged table is an empty one.
    """
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
        entries = json.loads(read_bytes(_path(), MOST_BYTES))
        return {key: check_value(key, entry, tuple[Positive, Positive, Positive]) for key, entry in entries.items()}
    return {}
