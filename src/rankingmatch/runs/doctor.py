"""What this machine has, how fast it is, and what to install."""

import importlib.metadata
import os
import platform
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rankingmatch import __version__
from rankingmatch.augment import ViewSettings
from rankingmatch.core.devices import find_device
from rankingmatch.core.errors import RankingMatchError, first_line
from rankingmatch.data import Dataset, DataSettings, Images, Progress, make_split, no_progress
from rankingmatch.data.bank import Bank
from rankingmatch.methods import make_method
from rankingmatch.networks import NetworkSettings, predict_probabilities, to_tensor
from rankingmatch.networks.classifier import Tune
from rankingmatch.training.loop import train
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import initial_state

CLASSES, MU = 10, 7
STEPS = 6
PREDICTED = 16  # images in a batch to predict
GIBI = 2**30

# The extras that people use, and what for.
EXTRAS = {
    "label": "label images in the browser",
    "weights": "larger pretrained networks for photographs",
    "timm": "the networks of timm",
    "figures": "report figures as files, learning curves",
    "tensorboard": "write TensorBoard logs",
    "shards": "images in Parquet files",
    "ray": "many runs, predictions of many files, or banks of views, on a cluster",
    "notebooks": "the example notebooks",
}


class Case(NamedTuple):
    """A network to measure: the images it is made for, what is trained, and B."""

    network: str
    side: int
    channels: int
    tune: Tune
    batch_size: int
    use: str


CASES = (
    Case("small", 8, 1, "all", 32, "digits"),
    Case("wrn-28-2", 32, 3, "all", 2, "CIFAR-10, SVHN"),
    Case("efficientnet-lite2", 260, 3, "top", 2, "photographs"),
)


def examine(device: str = "auto", progress: Progress = no_progress) -> dict[str, Any]:
    """Look at this machine, and measure a few networks on noise; takes about ten seconds on a CPU.

    The values are plain: "system", "devices", "versions", "extras", "speeds", and "advice", a list of sentences.
    """
    chosen = find_device(device)
    processor = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        processor = next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    total, available = _memory()
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    accelerators: list[dict[str, Any]] = [{"name": accelerator.type, "memory_gib": None}] if accelerator else []
    if torch.cuda.is_available():
        gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        accelerators = [{"name": gpu.name, "memory_gib": round(gpu.total_memory / GIBI, 1)} for gpu in gpus]
    found: dict[str, Any] = {
        "system": {
            "platform": platform.platform(),
            "python": platform.python_version(),
            "processor": processor,
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "threads": torch.get_num_threads(),
            "memory_gib": total,
            "available_memory_gib": available,
        },
        "devices": {"used": str(chosen), "accelerators": accelerators},
        "versions": _versions(_requirements("")),
        "extras": {
            name: {"installed": None not in _versions(_requirements(name) or ["nothing"]).values(), "for": use}
            for name, use in EXTRAS.items()
        },
        "speeds": [],
    }
    for number, case in enumerate(CASES):
        progress("measuring networks", number, len(CASES))
        found["speeds"].append(_speed(case, chosen))
    progress("measuring networks", len(CASES), len(CASES))
    return {**found, "advice": _advice(found)}


def _memory() -> tuple[float | None, float | None]:
    """Total and available memory in GiB, where the system tells."""
    with suppress(OSError), Path("/proc/meminfo").open(encoding="utf-8") as lines:
        values = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return round(values["MemTotal"] / GIBI, 1), round(values["MemAvailable"] / GIBI, 1)
    with suppress(OSError, ValueError):
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIBI, 1), None
    return None, None


def _requirements(extra: str) -> list[str]:
    """The packages that an extra needs; those that are always needed for the extra ""."""
    with suppress(importlib.metadata.PackageNotFoundError):
        lines = importlib.metadata.requires("rankingmatch") or []
        pairs = [(line, re.search(r"extra == ['\"]([^'\"]+)['\"]", line)) for line in lines]
        return [re.split(r"[^\w.-]", line)[0] for line, of in pairs if (of[1] if of else "") == extra]
    return []


def _versions(packages: Iterable[str]) -> dict[str, str | None]:
    """The installed version of each package; None if it is missing."""
    versions: dict[str, str | None] = {"rankingmatch": __version__}
    for package in packages:
        versions[package] = None
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _speed(case: Case, device: torch.device) -> dict[str, Any]:
    """How fast a network is trained (the median of a few steps) and predicts; or why it could not be measured.

    The images are noise, and so are the outputs of a frozen part. Many images are predicted faster on a CPU, in ONNX
    Runtime.
    """
    result: dict[str, Any] = {"network": case.network, "images": f"{case.side}×{case.side}×{case.channels}"}
    result |= {"tune": case.tune, "for": case.use}
    labels = np.arange(64) % CLASSES
    noise = np.random.default_rng(0).integers(0, 256, (64, case.side, case.side, case.channels)).astype(np.uint8)
    dataset = Dataset(tuple(map(str, range(CLASSES))), Images(noise, labels))
    split = make_split(dataset, DataSettings(labels=CLASSES), seed=0)
    settings = TrainSettings(steps=1000, stop_after=STEPS, batch_size=case.batch_size, mu=MU)
    network = NetworkSettings(case.network, tune=case.tune)
    try:
        state = initial_state(split, make_method("fixmatch-ra"), network, ViewSettings(), settings, device)
        if state.model.takes_maps:
            with torch.no_grad():
                shape = state.ema.maps(to_tensor(noise[:1], device)).shape[1:]
            maps = np.random.default_rng(0).random((len(noise), *shape)).astype(np.float16)
            state.bank = Bank({name: [maps] for name in ("weak", "medium", "strong")})
        seconds = [record.step_seconds for record in train(state, split, settings)][1:]  # without warming up
        predict_probabilities(state.ema, noise[:2], device)  # to warm up
        started = time.perf_counter()
        predict_probabilities(state.ema, noise[:PREDICTED], device)
        predicted = (time.perf_counter() - started) / PREDICTED
    except (RankingMatchError, RuntimeError) as error:  # such as too little memory
        return {**result, "problem": first_line(error)}
    trained = case.batch_size * (1 + MU) / float(np.median(seconds))
    return {**result, "trained_per_second": round(trained, 1), "predict_milliseconds": round(1000 * predicted, 3)}


def _advice(found: dict[str, Any]) -> list[str]:
    """What to install or to know."""
    advice = []
    if shutil.which("nvidia-smi") and not torch.cuda.is_available():
        advice.append("there is an NVIDIA driver, but this torch cannot use it: install torch for CUDA (pytorch.org)")
    elif not found["devices"]["accelerators"]:
        advice.append("there is no GPU: use small networks, or train only the top or the head of pretrained ones")
    cores, threads = found["system"]["cores"], found["system"]["threads"]
    if cores and threads < cores and not found["devices"]["accelerators"]:
        advice.append(f"torch uses {threads} of {cores} cores: train with {cores} threads, or unset OMP_NUM_THREADS")
    available = found["system"]["available_memory_gib"]
    if available is not None and available < 2:
        advice.append(f"only {available:g} GiB of memory are free: use smaller batches, or close other programs")
    missing = [name for name, version in found["versions"].items() if version is None]
    if missing:
        advice.append(f"required packages are missing: pip install {' '.join(missing)}")
    return advice + [
        f"pip install 'rankingmatch[{name}]'  # {extra['for']}"
        for name, extra in found["extras"].items()
        if not extra["installed"]
    ]
