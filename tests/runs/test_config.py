"""What is given comes before the dataset's preset, and that before the defaults; anything wrong is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from image_folders import class_folders

from rankingmatch.core.devices import computes_bfloat16
from rankingmatch.core.errors import ConfigError
from rankingmatch.data import image_folder
from rankingmatch.data.folder_contents import scan_folder
from rankingmatch.runs.config import Config, checked_settings, resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start
from rankingmatch.runs.train import train


@pytest.mark.parametrize(("supported", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_the_precision_auto_is_decided_by_the_device_and_recorded(
    supported: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankingmatch.runs.config.computes_bfloat16", lambda device: supported)
    config = resolve("digits", None, {"precision": "auto"}).config
    assert config.training.precision == expected
    monkeypatch.setattr("rankingmatch.runs.config.computes_bfloat16", lambda device: not supported)
    assert Config.from_json(config.to_json()).training.precision == expected  # resumed on another machine


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({"avx512_bf16": True, "amx_bf16": False}, True), ({"avx512_bf16": False, "avx2": True}, False), ({}, False)],
)
def test_a_cpu_computes_bfloat16_if_it_has_instructions_for_it(
    capabilities: dict[str, bool], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities)
    assert computes_bfloat16(torch.device("cpu")) is expected
    assert not computes_bfloat16(torch.device("mps"))


@pytest.mark.parametrize("supported", [True, False])
def test_bfloat16_is_warned_of_where_it_is_slow(
    supported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rankingmatch.runs.job.computes_bfloat16", lambda device: supported)
    tiny = {"network": "wrn-10-1", "batch_size": 2, "labels": 10}
    start(Run(tmp_path / "run"), resolve("digits", None, {"precision": "bfloat16", "device": "cpu", **tiny}))
    assert any("no instructions for bfloat16" in message for message in caplog.messages) is not supported


@pytest.mark.parametrize(
    ("dataset", "method", "given", "expected"),
    [
        ("digits", "rankingmatch-bm", {"padding": 3}, {"padding": 3, "cutout": 4, "mu": 7, "threshold": 0.95}),
        ("digits", "fixmatch-ra", {}, {"mu": 7, "strong": "randaugment"}),
        *(("digits", method, {}, {"mu": 1}) for method in ("pseudo-label", "pi-model", "mean-teacher", "vat")),
        ("digits", "vat", {"mu": 3}, {"mu": 3}),
        ("digits", "fixmatch-cta", {}, {"strong": "ctaugment"}),
        ("digits", "fixmatch-cta", {"strong": "randaugment"}, {"strong": "randaugment"}),
        ("digits", "rankingmatch-ct", {"strong": "ctaugment"}, {"strong": "ctaugment"}),
        ("digits", "remixmatch", {}, {"mu": 1, "strong": "ctaugment", "labeled_view": "weak", "guesses": 8}),
        ("svhn", "remixmatch", {}, {"cutout": 0}),
        ("svhn", "remixmatch", {"cutout": 8}, {"cutout": 8}),
        ("cifar100", "remixmatch", {}, {"labeled_view": "strong", "guesses": 8}),
        ("stl10", "remixmatch", {}, {"labeled_view": "strong", "guesses": 4}),
        ("svhn", "freematch", {}, {"lowest_threshold": 0.9, "highest_threshold": 0.95}),
        ("svhn", "freematch", {"lowest_threshold": 0.5}, {"lowest_threshold": 0.5, "highest_threshold": 0.95}),
        ("cifar10", "freematch", {}, {"lowest_threshold": 0.0, "highest_threshold": 1.0}),
        ("svhn", "vat", {}, {"epsilon": 1.0}),
        ("cifar10", "vat", {}, {"epsilon": 6.0}),
    ],
)
def test_a_method_may_want_other_settings_also_for_a_dataset_and_what_is_given_comes_first(
    dataset: str, method: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    settings = resolve(dataset, method, given).config.settings()
    assert {name: settings[name] for name in expected} == expected


@pytest.mark.parametrize(
    "change",
    [
        {"training": None},
        {"training": {"steps": "many"}},
        {"training": {"no_such": 1}},
        {"method": "nothing"},
        {"hyperparameters": {"threshold": 7.0}},
    ],
)
def test_a_changed_configuration_file_is_refused(change: dict[str, Any]) -> None:
    values = {**resolve("digits", "rankingmatch-bm", {}).config.to_json(), **change}
    with pytest.raises(ConfigError):
        Config.from_json(values)


@pytest.mark.parametrize(
    ("method", "given", "name", "before"),
    [
        ("fixmatch-ra", {"threshold": 0.9}, "rebalance", None),  # newer than the file
        ("fixmatch-ra", {}, "skip_unsure", False),  # version 0.2.0 wrote it, and the next one
        ("rankingmatch-bm", {}, "weak_pass", "joint"),
        ("softmatch", {"statistics_decay": 0.999}, "statistics_decay", 0.999),  # earlier versions' own default
    ],
)
def test_the_configuration_of_an_earlier_version_has_its_meaning(
    method: str, given: dict[str, Any], name: str, before: object
) -> None:
    config = resolve("digits", method, given).config
    saved = config.to_json()
    saved["hyperparameters"].pop(name, None)
    if before is not None:
        saved["hyperparameters"][name] = before
    assert Config.from_json(json.loads(json.dumps(saved))) == config
    for removed, other in (("skip_unsure", True), ("weak_pass", "batch")):
        with pytest.raises(ConfigError, match=f"{removed} is not used by the method '{method}'"):
            Config.from_json({**saved, "hyperparameters": {removed: other}})


@pytest.mark.parametrize("given", [{"image_size": "big"}, {"network": 5}, {"unlabeled": 5}, {"epochs": "many"}])
def test_a_value_of_another_type_is_named_before_it_is_used(given: dict[str, Any], tmp_path: Path) -> None:
    class_folders(tmp_path / "photos")
    (name,) = given
    with pytest.raises(ConfigError, match=f"{name} is .*; it must be of type"):
        resolve(str(tmp_path / "photos"), "supervised", given)


def test_paths_are_absolute_whatever_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"split": "a.json", "weights": "../w.safetensors", "data_dir": None, "network": "small"}
    paths = {"split": str(tmp_path / "a.json"), "weights": str(tmp_path.parent / "w.safetensors")}
    assert checked_settings(given) == {**given, **paths}


@pytest.mark.parametrize("name", ["split", "weights", "data_dir", "unlabeled", "labels_csv"])
def test_a_link_to_itself_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=f"{name} .*loop is a link to itself"):
        resolve("digits", None, {name: str(tmp_path / "loop")})
    folder = str(class_folders(tmp_path / "photos"))
    if name in ("unlabeled", "labels_csv"):  # as in the file of a run, whose paths have been resolved
        with pytest.raises(ConfigError, match=f"{name} .*loop is a link to itself"):
            image_folder.find_source(folder, **{name: str(tmp_path / "loop")})


def test_training_on_a_folder_scans_it_once_from_the_request_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_folders(tmp_path / "photos")
    scans = []

    def scan(*arguments: Any) -> Any:
        scans.append(arguments)
        return scan_folder(*arguments)

    monkeypatch.setattr(image_folder, "scan_folder", scan)
    monkeypatch.chdir(tmp_path)
    run = train("photos", method="supervised", out="run", steps=2, batch_size=4, threads=1)
    assert run.report_path.exists()
    assert run.config().dataset == str(tmp_path / "photos")
    assert len(scans) == 1
