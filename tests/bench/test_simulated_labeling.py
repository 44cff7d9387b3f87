"""Simulated labeling of the digits: our order beats a random one, and the audit is honest."""

import json
import statistics
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from image_folders import class_folders

from rankingmatch.bench.results import keep_rows, read_measurement
from rankingmatch.bench.simulated_labeling import (
    Look,
    Pool,
    Simulation,
    interval_counts,
    known_pool,
    make_pool,
    read_labelings,
    simulate,
)
from rankingmatch.cli import cli
from rankingmatch.core.errors import DataError, RunError
from rankingmatch.heads import LOGISTIC_REGRESSION

quickly = partial(simulate, method=LOGISTIC_REGRESSION)


@pytest.fixture(scope="module")
def digits() -> Pool:
    return known_pool("digits")


def test_our_order_needs_half_the_labels_of_a_random_one(digits: Pool) -> None:
    ours, random = ([quickly(digits, order, seed, (40, 80)) for seed in range(3)] for order in ("ours", "random"))
    assert statistics.mean(one.errors[0] for one in ours) < statistics.mean(one.errors[1] for one in random)


def test_a_simulation_is_determined_by_its_seed_and_has_the_sizes_of_its_pool(digits: Pool) -> None:
    for order in ("ours", "random"):
        first, again, other = (simulate(digits, order, seed, (10,)) for seed in (0, 0, 1))
        assert first == again != other
    assert quickly(hard_pool(0), "random", 0, (100, 160, 161)).sizes == (100, 160)


def hard_pool(seed: int) -> Pool:
    """A small folder of overlapping clusters, and many pictures to measure the error with."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, 2000)
    features = 0.6 * np.random.default_rng(0).standard_normal((4, 8))[truth] + rng.standard_normal((2000, 8))
    return make_pool("clusters", 4, features[:200], truth[:200], features[200:], truth[200:])


@pytest.mark.slow
def test_the_interval_of_the_audit_contains_the_error_in_90_of_100_labelings() -> None:
    simulations = [quickly(hard_pool(seed), "ours", seed, (40,)) for seed in range(100)]
    assert 20 < statistics.mean(one.errors[0] for one in simulations) < 60  # so that the interval matters
    assert interval_counts(simulations)["40 labels"] >= 90


def test_intervals_that_contain_the_truth_are_counted() -> None:
    looks = [(Look(1, 9, 5), Look(1, 9, 10)), (Look(5, 9, 5), Look(1, 9, 9))]
    simulations = [Simulation("ours", 0, (10, 20), (0, 0), pair) for pair in looks]
    assert interval_counts(simulations) == {"10 labels": 2, "20 labels": 1, "where the interval looks best": 2}
    three = (Look(0, 90, 95), Look(5, 30, 12), Look(6, 35, 50))
    counts = interval_counts([Simulation("ours", 0, (10, 20, 40), (0, 0, 0), three)])
    assert list(counts.values()) == [0, 1, 0, 1]


def test_bench_labeling_prints_a_table_and_counts_intervals(digits: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankingmatch.bench.simulated_labeling.known_pool", lambda name, data_dir: digits)
    monkeypatch.setattr("rankingmatch.bench.simulated_labeling.SIZES", (10, 20))
    method = ["--method", LOGISTIC_REGRESSION]
    table = CliRunner().invoke(cli, ["bench", "labeling", "--seeds", "2", *method])
    assert table.exit_code == 0, table.output
    assert "random" in table.stdout
    assert "20 labels: the interval contains the true error in" in table.stdout
    done = CliRunner().invoke(cli, ["bench", "labeling", "digits", "--seeds", "1", "--json", *method])
    lines = done.stdout.splitlines()
    assert [json.loads(line)["order"] for line in lines] == ["ours", "random"]
    assert json.loads(lines[0])["labels"] == [10, 20]


def test_labelings_are_kept_and_not_simulated_again_with_the_same_code(
    digits: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commits, simulated = ["0123456789ab"], []

    def counted(pool: Pool, order: str, seed: int, method: str) -> Simulation:
        simulated.append((seed, order))
        return simulate(pool, order, seed, (10, 20), method)

    monkeypatch.setattr("rankingmatch.bench.simulated_labeling.known_pool", lambda name, data_dir: digits)
    monkeypatch.setattr("rankingmatch.bench.simulated_labeling.simulate", counted)
    for module in ("rankingmatch.runs.directory", "rankingmatch.bench.results"):
        monkeypatch.setattr(f"{module}.source_commit", lambda: commits[-1])

    def errors(seeds: int) -> list[list[float]]:
        given = ["--seeds", str(seeds), "--keep", str(tmp_path / "new"), "--json", "--method", LOGISTIC_REGRESSION]
        done = CliRunner().invoke(cli, ["bench", "labeling", "my/digits", *given], catch_exceptions=False)
        return [json.loads(line)["test_error"] for line in done.stdout.splitlines()]

    first = errors(1)
    assert errors(2)[:2] == first
    assert simulated == [(0, "ours"), (0, "random"), (1, "ours"), (1, "random")]
    kept = read_measurement(tmp_path / "new/labeling-my_digits-logistic-regression.json")
    assert {row["data"] for row in kept.rows} == {digits.title}
    commits.append("ba9876543210")
    assert errors(1) == first
    assert len(simulated) == 6


def test_a_damaged_file_of_labelings_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labeling-digits.json"
    keep_rows(path, "bench", [{"order": "ours", "seed": "zero", "sizes": [], "errors": [], "looks": []}])
    with pytest.raises(RunError, match=r"labeling-digits.json .*seed is 'zero'"):
        read_labelings(path)


def test_a_pool_has_test_images_and_the_pixels_of_small_ones(digits: Pool, tmp_path: Path) -> None:
    assert (digits.features.shape, digits.test_features.shape) == ((1437, 64), (360, 64))
    with pytest.raises(DataError, match="test images"):
        known_pool(str(class_folders(tmp_path / "photos")))
