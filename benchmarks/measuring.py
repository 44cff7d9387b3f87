"""How things are measured here: side by side in one run, in turns, as ratios whose median counts.

Load from elsewhere then hits both sides alike. Time is CPU time of the process, with one thread unless a benchmark says
otherwise: other processes change it less than the time on the wall. Memory is what a process of its own grows by.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from rankingmatch.core.memory import peak_memory, reset_peak_memory

CPU = torch.device("cpu")
MEBI = 2**20
Work = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One line of the table: what is measured, what is wanted of it, and what came out."""

    measure: str
    reach: float
    value: float
    at_least: bool = True  # or at most
    detail: str = ""

    @property
    def reached(self) -> bool:
        """Whether the value is on the right side of what is wanted."""
        return self.value >= self.reach if self.at_least else self.value <= self.reach

    def cells(self) -> tuple[str, str, str, str]:
        """Measure, reach, measured, verdict."""
        sign = "≥" if self.at_least else "≤"
        measured = f"{self.value:.3g} ×" + (f" ({self.detail})" if self.detail else "")
        return self.measure, f"{sign} {self.reach:.3g} ×", measured, "reached" if self.reached else "not reached"


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def seconds(work: Work) -> float:
    """The CPU time of a call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def wall_seconds(work: Work) -> float:
    """The time of a call on the wall: where threads work beside each other."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(
    works: Mapping[str, Work], rounds: int, clock: Callable[[Work], float] = seconds
) -> dict[str, list[float]]:
    """The seconds of each work in each round, after one round that only warms up."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(clock(work))
    return times


def ratio(times: Mapping[str, list[float]], upper: str, lower: str) -> float:
    """The median over the rounds of one work's time divided by another's."""
    return statistics.median(u / v for u, v in zip(times[upper], times[lower], strict=True))


def milliseconds(times: Mapping[str, list[float]], name: str) -> str:
    """The median of a work's times, for people."""
    value = 1000 * statistics.median(times[name])
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def growth_of(work: Work) -> int:
    """Bytes by which the process grows, at the peak, while it works."""
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    work()
    return peak_memory(CPU) - before


def growth_in_own_process(script: str, *arguments: str) -> float:
    """The bytes that a script, called with these arguments in a process of its own, prints."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
