"""Several processes do the same work as one."""

import json
from pathlib import Path
from typing import Any

import pytest
from divided import trained
from torchrun import torchrun

from rankingmatch.methods import METHODS
from rankingmatch.methods.rebalancing import REMEDIES

pytestmark = pytest.mark.slow


WITH_REMEDIES = [f"fixmatch-ra@{remedy}" for remedy in REMEDIES if remedy != "none"]


def of_processes(number: int, file: Path, *names: str) -> dict[str, Any]:
    process = torchrun(number, "divided", file, *names)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return of_processes(2, tmp_path_factory.mktemp("divided") / "two.json", *METHODS, *WITH_REMEDIES)


def assert_equal_to_one_process(name: str, several: dict[str, Any]) -> None:
    one, run = trained(name), several["runs"][name]
    assert len(run["losses"]) == len(one["losses"]) == 20
    for step, losses in enumerate(one["losses"]):
        assert run["losses"][step] == pytest.approx(losses, abs=1e-5), f"step {step}"
    assert run["confident"] == one["confident"]
    assert run["errors"] == one["errors"]
    for key, values in one["weights"].items():
        assert run["weights"][key] == pytest.approx(values, abs=1e-5), key
    for part in ("buffers", "rates"):  # thresholds, histograms, queues; how well CTAugment's bins do
        for mine, theirs in zip(run[part], one[part], strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5)
    assert all(digests[name] == several["digests"][0][name] for digests in several["digests"]), "processes disagree"


@pytest.mark.parametrize("name", [*METHODS, *WITH_REMEDIES])
def test_two_processes_give_the_losses_of_one(name: str, of_two: dict[str, Any]) -> None:
    assert_equal_to_one_process(name, of_two)


@pytest.mark.parametrize("processes", [3, 4])
def test_more_processes_give_the_losses_of_one(processes: int, tmp_path: Path) -> None:
    several = of_processes(processes, tmp_path / "several.json", "rankingmatch-ba")
    assert len(several["digests"]) == processes
    assert_equal_to_one_process("rankingmatch-ba", several)
