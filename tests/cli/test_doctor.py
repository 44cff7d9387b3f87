"""`rankingmatch doctor` says what the machine has, how fast it is, and what to install."""

import importlib.metadata
import json
import re
import shutil
import tomllib
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from rankingmatch import __version__
from rankingmatch.cli import main
from rankingmatch.cli.printing import doctor_page
from rankingmatch.runs import doctor

SMALL = doctor.Case("wrn-10-1", 8, 1, "all", 2, "tests")


@pytest.fixture(autouse=True)
def _one_small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CASES", (SMALL,))


def test_the_page_and_its_json_have_the_device_the_versions_the_speeds_and_the_extras(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = doctor.Case("efficientnet-lite0", 32, 3, "top", 1, "tests")
    monkeypatch.setattr(doctor, "CASES", (SMALL, frozen))
    main(["doctor", "--json", "--device", "cpu"])
    found = json.loads(capsys.readouterr().out)
    assert found["devices"]["used"] == "cpu"
    assert found["system"]["memory_gib"] >= found["system"]["available_memory_gib"] > 0
    assert [speed["network"] for speed in found["speeds"]] == ["wrn-10-1", "efficientnet-lite0"]
    assert all(speed["trained_per_second"] > 0 < speed["predict_milliseconds"] for speed in found["speeds"])
    page = "\n".join(doctor_page(found))
    assert "computing on cpu" in page
    assert f"rankingmatch {__version__}" in page
    assert f"torch uses {torch.get_num_threads()} threads" in page
    assert re.search(r"wrn-10-1, 8×8×1 +tests +[\d,]+ images +[\d.]+ ms", page)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"bench", "dev", "docs", "test"}
    assert all(f"{extra} " in page for extra in extras)


def test_what_is_missing_is_to_be_installed_and_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("starlette", "rich"):
            raise importlib.metadata.PackageNotFoundError
        return installed(name)

    told: list[tuple[str, int, int | None]] = []
    monkeypatch.setattr(importlib.metadata, "version", version)
    found = doctor.examine("cpu", lambda *values: told.append(values))
    assert told == [("measuring networks", 0, 1), ("measuring networks", 1, 1)]
    assert found["versions"]["rich"] is None
    assert not found["extras"]["label"]["installed"]
    assert any("pip install rich" in line for line in found["advice"])
    assert any("pip install 'rankingmatch[label]'" in line for line in found["advice"])


def test_a_network_that_cannot_be_measured_and_a_driver_without_its_torch_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "train", Mock(side_effect=torch.OutOfMemoryError("too little memory\nof this GPU")))
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = doctor.examine("cpu")
    assert "torch for CUDA" in found["advice"][0]
    assert any("too little memory" in line for line in doctor_page(found))
