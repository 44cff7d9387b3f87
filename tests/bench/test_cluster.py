"""A grid on a Ray cluster of this machine alone; without Ray, what is said instead."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from on_ray import needs_ray
from tiny import RECIPE_TEXT, models

from rankingmatch.bench import cluster as module
from rankingmatch.bench import run_recipe
from rankingmatch.bench.cluster import Cluster, Resources, connected
from rankingmatch.bench.grid import GridDisplay, run_grid
from rankingmatch.bench.recipe import Cell, cells, parse_recipe
from rankingmatch.core.errors import ConfigError, Interrupted, RankingMatchError
from rankingmatch.runs.config import Plan
from rankingmatch.runs.directory import Run

TEXT = RECIPE_TEXT.replace("folds = 2", "folds = 1")
RECIPE = parse_recipe("mine", TEXT)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with connected(Resources()) as crew:
        yield crew


def one_run(steps: int) -> list[Cell]:
    """A grid of one run, with a checkpoint every 50 steps."""
    recipe = parse_recipe("long", TEXT.replace("steps = 4", f"steps = {steps}\ncheckpoint_steps = 50"))
    return cells(recipe, folds=1, scale=None, given={})[:1]


@pytest.mark.parametrize("command", ["bench demo --on", "train digits --out run --bank-on"])
def test_without_ray_the_extra_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'rankingmatch[ray]'" in refused(*command.split(), "ray")
    assert not list(tmp_path.iterdir())


@needs_ray
def test_a_cluster_gives_the_identical_runs_and_keeps_finished_ones(cluster: Cluster, tmp_path: Path) -> None:
    run_recipe(RECIPE, out=tmp_path / "here")
    run_recipe(RECIPE, out=tmp_path / "ray", workers=cluster)
    assert models(tmp_path / "ray") == models(tmp_path / "here")
    assert len(models(tmp_path / "ray")) == 2
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray").rglob("*.safetensors")}
    run_recipe(RECIPE, out=tmp_path / "ray", workers=cluster)
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "ray").rglob("*.safetensors")}


@needs_ray
def test_a_mistake_on_the_cluster_comes_back_as_it_was(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankingmatch.bench.grid.load_datasets", lambda grid: None)  # which would find it here
    recipe = parse_recipe("bad", TEXT + 'split = "nowhere.json"\n')
    with pytest.raises(RankingMatchError, match=r"^split is .*nowhere.json, which cannot be read"):
        run_recipe(recipe, out=tmp_path, workers=cluster)


class Stopper(GridDisplay):
    """A watcher that interrupts the grid once, when a run has made a step."""

    stopped = False

    def update(self, name: str, step: int) -> None:
        if step > 0 and not self.stopped:
            self.stopped = True
            os.kill(os.getpid(), signal.SIGTERM)


@needs_ray
def test_a_run_that_is_stopped_leaves_a_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    grid = one_run(1_000_000)
    with pytest.raises(Interrupted):
        run_grid(grid, tmp_path, Stopper(), workers=cluster)
    assert Run(tmp_path / grid[0].directory).result() is None
    assert list(tmp_path.glob("*/checkpoints/*.json"))


@needs_ray
def test_a_run_whose_worker_is_lost_goes_on(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = module._train

    def killed_once(*arguments: Any) -> Any:  # in a worker
        train_to_result = train.__globals__["train_to_result"]

        def to_result(path: Path, plan: Plan, stopped: Any, update: Any) -> Any:
            def killing_update(step: int) -> None:
                with (tmp_path / "steps").open("a") as file:
                    file.write(f"{step}\n")
                if step == 70 and (tmp_path / "steps").read_text().count("70\n") == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                update(step)

            return train_to_result(path, plan, stopped, killing_update)

        with patch.dict(train.__globals__, train_to_result=to_result):
            return train(*arguments)

    grid = one_run(100)
    monkeypatch.setattr(module, "_train", killed_once)
    run_grid(grid, tmp_path, GridDisplay(), workers=cluster)
    steps = [int(line) for line in (tmp_path / "steps").read_text().splitlines()]
    assert steps == [*range(1, 71), *range(51, 101)]
    run_grid(grid, tmp_path / "whole", GridDisplay())
    assert models(tmp_path / "whole") == {grid[0].directory: models(tmp_path)[grid[0].directory]}


@needs_ray
def test_more_than_the_cluster_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="cpus_per_run 999"), connected(Resources(cpus=999)):
        pass
