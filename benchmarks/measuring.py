"""How the benchmarks measure: in turn, in one process, as the median of ratios.

Load from other programs then affects both sides equally. Time is the CPU time of the process, with one thread unless
stated otherwise, because other processes affect it less than wall time. Memory is the growth of a separate process.

Each benchmark prints a table. With `--keep docs/results`, benchmarks/NAME.py also writes what it measured to NAME.json,
from which `python tools/results.py` makes the table of the docs, with the benchmark's function `table`.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rankingmatch.bench.results import command_line, keep_rows
from rankingmatch.core.devices import peak_memory, reset_peak_memory

CPU = torch.device("cpu")
MEBI = 2**20
Work = Callable[[], object]
Rows = list[dict[str, Any]]  # what was measured, not rounded


@dataclass(frozen=True)
class Row:
    """One row of the table: what is measured, the target, and the measured ratio."""

    measure: str
    target: float
    value: float
    at_least: bool = True  # False: the target is an upper bound
    detail: str = ""

    @property
    def reached(self) -> bool:
        """Whether the target is reached."""
        return self.value >= self.target if self.at_least else self.value <= self.target

    def cells(self) -> tuple[str, str, str, str]:
        """Measure, target, measured, verdict."""
        sign = "≥" if self.at_least else "≤"
        measured = f"{self.value:.3g} ×" + (f" ({self.detail})" if self.detail else "")
        return self.measure, f"{sign} {self.target:.3g} ×", measured, "reached" if self.reached else "not reached"


def add_keep(parser: argparse.ArgumentParser) -> None:
    """Add the option `--keep`."""
    parser.add_argument("--keep", type=Path, metavar="DIR", help="also keep what is measured, for the docs")


def report(text: str, rows: Rows, directory: Path | None, variant: str = "") -> None:
    """Print a table, and keep its rows in a file with the name of the script, and of the variant that it measured."""
    print(text)
    if directory is not None:
        script = Path(sys.argv[0])
        name = f"{script.stem}-{variant}" if variant else script.stem
        keep_rows(
            directory / f"{name}.json", command_line(["python", f"benchmarks/{script.name}", *sys.argv[1:]]), rows
        )


def markdown(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def seconds(work: Work) -> float:
    """The CPU time of a call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def wall_seconds(work: Work) -> float:
    """The wall time of a call, for work on several threads."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(
    works: Mapping[str, Work], rounds: int, clock: Callable[[Work], float] = seconds
) -> dict[str, list[float]]:
    """The seconds of each function in each round, after a warm-up round."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(clock(work))
    return times


def ratio(times: Mapping[str, list[float]], upper: str, lower: str) -> float:
    """The median over the rounds of the time of one function divided by that of another."""
    return statistics.median(u / v for u, v in zip(times[upper], times[lower], strict=True))


def milliseconds(times: Mapping[str, list[float]], name: str) -> str:
    """The median time of a function, as text."""
    value = 1000 * statistics.median(times[name])
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def growth_of(work: Work) -> int:
    """The peak growth of the process during a call, in bytes."""
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    work()
    return peak_memory(CPU) - before


def growth_in_own_process(script: str, *arguments: str) -> float:
    """The number of bytes that a script prints when it runs in a separate process."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
