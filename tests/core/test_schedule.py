"""Schedules at steps whose values can be computed by hand."""

import math

import pytest

from rankingmatch.core.schedule import Annealing, cosine, ema_decay, linear_ramp, statistics_momentum, tsa_threshold


def test_cosine_starts_at_the_base_and_ends_at_seven_sixteenths_of_a_half_turn() -> None:
    assert cosine(0.03, 0, 1000) == 0.03
    assert cosine(0.03, 1000, 1000) == pytest.approx(0.03 * math.cos(7 * math.pi / 16))
    assert cosine(1.0, 500, 1000) == pytest.approx(math.cos(7 * math.pi / 32))


def test_ema_warms_up_to_its_decay() -> None:
    assert ema_decay(0.999, 0) == 0.1
    assert ema_decay(0.999, 90) == 0.91
    assert ema_decay(0.999, 100_000) == 0.999


@pytest.mark.parametrize(("steps", "momentum"), [(131_072, 0.001), (2**20, 0.001), (13_107, 0.01), (100, 0.1)])
def test_running_statistics_cover_the_same_fraction_of_any_run(steps: int, momentum: float) -> None:
    assert statistics_momentum(steps) == pytest.approx(momentum, rel=1e-3)


@pytest.mark.parametrize(("step", "ramp"), [(0, 0.0), (10, 0.25), (39, 0.975), (40, 1.0), (99, 1.0)])
def test_a_linear_ramp_ends_after_its_fraction_of_the_run(step: int, ramp: float) -> None:
    assert linear_ramp(step, 100, 0.4) == pytest.approx(ramp)
    assert linear_ramp(step, 100, 0.0) == 1.0


@pytest.mark.parametrize(
    ("kind", "alphas"),
    [
        ("linear", [0.0, 0.5, 1.0]),
        ("exp", [math.exp(-5.0), math.exp(-2.5), 1.0]),
        ("log", [0.0, 1 - math.exp(-2.5), 1 - math.exp(-5.0)]),
    ],
)
@pytest.mark.parametrize("classes", [2, 10])
def test_the_tsa_threshold_rises_from_one_over_the_classes(kind: Annealing, alphas: list[float], classes: int) -> None:
    thresholds = [tsa_threshold(kind, step, 100, classes) for step in (0, 50, 100)]
    assert thresholds == pytest.approx([alpha * (1 - 1 / classes) + 1 / classes for alpha in alphas])
    assert tsa_threshold("none", 0, 100, classes) == math.inf
