"""Schedules at the points one can compute by hand."""

import math

import pytest

from rankingmatch.schedule import batchnorm_momentum, cosine, ema_decay, linear_ramp, tsa_threshold


def test_cosine_starts_at_the_base_and_ends_at_seven_sixteenths_of_a_half_turn() -> None:
    assert cosine(0.03, 0, 1000) == 0.03
    assert cosine(0.03, 1000, 1000) == pytest.approx(0.03 * math.cos(7 * math.pi / 16))
    assert cosine(1.0, 500, 1000) == pytest.approx(math.cos(7 * math.pi / 32))


def test_ema_warms_up_to_its_decay() -> None:
    assert ema_decay(0.999, 0) == 0.1
    assert ema_decay(0.999, 90) == 0.91
    assert ema_decay(0.999, 100_000) == 0.999


@pytest.mark.parametrize(("steps", "momentum"), [(131_072, 0.001), (2**20, 0.001), (13_107, 0.01), (100, 0.1)])
def test_batchnorm_looks_back_over_the_same_share_of_any_run(steps: int, momentum: float) -> None:
    assert batchnorm_momentum(steps) == pytest.approx(momentum, rel=1e-3)


@pytest.mark.parametrize(("step", "fraction", "value"), [(0, 0.5, 0.0), (10, 0.5, 0.2), (50, 0.5, 1.0), (99, 0.5, 1.0)])
def test_a_ramp_rises_in_a_straight_line(step: int, fraction: float, value: float) -> None:
    assert linear_ramp(step, 100, fraction) == pytest.approx(value)


def test_no_ramp_is_one_from_the_start() -> None:
    assert linear_ramp(0, 100, 0.0) == 1.0


@pytest.mark.parametrize(
    ("kind", "start", "middle", "end"),
    [
        ("linear", 0.25, 0.625, 1.0),
        ("exp", 0.25 + 0.75 * math.exp(-5), 0.25 + 0.75 * math.exp(-2.5), 1.0),
        ("log", 0.25, 0.25 + 0.75 * (1 - math.exp(-2.5)), 0.25 + 0.75 * (1 - math.exp(-5))),
    ],
)
def test_the_annealing_threshold_rises_from_chance(kind: str, start: float, middle: float, end: float) -> None:
    assert [tsa_threshold(kind, step, 10, 4) for step in (0, 5, 10)] == pytest.approx([start, middle, end])
