"""What only a GPU can show: training steps in each precision, compiled or not, and what the images cost on their way.

One command, one table. Please send it with the output of `rankingmatch doctor`.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --device cpu --network wrn-10-1 --batch-size 2 --steps 3   # without a GPU, not compiled

Each row trains the same network on noise of 32×32×3 for a few steps after a warm-up. "Waits" is the share of a step in
which the CPU waits for the device at the end: the larger, the better the device is used. The ranking losses are those
of 448 rows.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from measuring import MEBI, Rows, add_keep, markdown, report
from rankingmatch.augment import ViewSettings
from rankingmatch.core.devices import find_device, peak_memory, reset_peak_memory
from rankingmatch.core.errors import RankingMatchError, first_line
from rankingmatch.data import Dataset, Images, Split, assemble_split
from rankingmatch.methods import make_method
from rankingmatch.networks import NetworkSettings
from rankingmatch.training.loop import train
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import initial_state

WARM_UP = 3


@dataclass(frozen=True)
class Variant:
    """A row of the table."""

    method: str
    precision: str = "float32"
    compiled: bool = False
    tf32: bool = False

    def __str__(self) -> str:
        extras = [name for name, used in (("compiled", self.compiled), ("TF32", self.tf32)) if used]
        return ", ".join([self.method, self.precision, *extras])


VARIANTS = (
    Variant("supervised"),
    Variant("fixmatch-ra"),
    Variant("rankingmatch-bm"),
    Variant("rankingmatch-bh"),
    Variant("rankingmatch-ct"),
    Variant("rankingmatch-ba"),
    Variant("rankingmatch-bm", tf32=True),
    Variant("rankingmatch-bm", "bfloat16"),
    Variant("rankingmatch-bm", "float16"),
    Variant("rankingmatch-bm", compiled=True),
    Variant("rankingmatch-bm", "bfloat16", compiled=True),
    Variant("fixmatch-cta"),
    Variant("flexmatch"),
)


def noise(count: int = 4096, classes: int = 10) -> Split:
    """Images of noise, 40 of them labeled."""
    images = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
    labels = np.arange(count) % classes
    return assemble_split(Dataset(tuple(map(str, range(classes))), Images(images, labels)), np.arange(40), np.arange(0))


def wait_for(device: torch.device) -> None:
    """Wait until the device has computed everything."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def measure(variant: Variant, split: Split, given: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Seconds of a step, seconds to issue one, the share of waiting, images per second, and bytes."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = variant.tf32
    settings = TrainSettings(batch_size=given.batch_size, log_every=10**9, evaluate_every=10**9)
    settings = replace(settings, steps=WARM_UP + given.steps + 1, precision=variant.precision)  # type: ignore[arg-type]
    strong = ViewSettings(strong="ctaugment" if variant.method == "fixmatch-cta" else "randaugment")
    method = make_method(variant.method, {"threshold": 1e-9} if variant.method.startswith("ranking") else {})
    state = initial_state(split, method, NetworkSettings(given.network), strong, settings, device)
    if variant.compiled:
        state.model.backbone.compile(dynamic=False)
    records = train(state, split, settings)
    for _ in range(WARM_UP):
        next(records)
    wait_for(device)
    reset_peak_memory(device)
    started, issued = time.perf_counter(), []
    for _ in range(given.steps):
        before = time.perf_counter()
        next(records)
        issued.append(time.perf_counter() - before)
    queued = time.perf_counter()
    wait_for(device)
    total = time.perf_counter() - started
    images = given.steps * given.batch_size * (1 + settings.mu * bool(method.unlabeled_views))
    return {
        "step": total / given.steps,
        "issued": statistics.median(issued),
        "waits": (time.perf_counter() - queued) / total,
        "speed": images / total,
        "memory": peak_memory(device),
    }


def table(rows: Rows) -> str:
    """A line for each variant."""
    return markdown(("method", "step", "issued in", "waits", "images/s", "memory"), list(map(cells, rows)))


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a line."""
    if "failure" in row:
        return row["variant"], f"not measured: {row['failure']}", "", "", "", ""
    return (
        row["variant"],
        f"{1000 * row['step']:,.1f} ms",
        f"{1000 * row['issued']:,.1f} ms",
        f"{row['waits']:.0%}",
        f"{row['speed']:,.0f}",
        f"{row['memory'] / MEBI:,.0f} MiB",
    )


def main() -> None:
    """Measure all variants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--network", default="wrn-28-2")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    add_keep(parser)
    given = parser.parse_args()
    device, split = find_device(given.device), noise()
    rows: Rows = []
    for variant in (variant for variant in VARIANTS if device.type != "cpu" or not variant.compiled):
        print(f"measuring {variant}", file=sys.stderr)
        try:
            rows.append({"variant": str(variant), **measure(variant, split, given, device)})
        except (RankingMatchError, RuntimeError) as error:  # such as too little memory, or no compiler
            rows.append({"variant": str(variant), "failure": first_line(error)})
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    print(f"{name}, torch {torch.__version__}, {given.network}, B = {given.batch_size}, {given.steps} steps\n")
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
