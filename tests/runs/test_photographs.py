"""Photographs start from pretrained weights; everything else, and everyone who asks for another network, does not."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from image_folders import picture

from rankingmatch.cli.printing import describe_plan
from rankingmatch.runs import photographs
from rankingmatch.runs.config import resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records
from rankingmatch.runs.train import train
from rankingmatch.training import evidence


def folder_of(path: Path, size: tuple[int, int] = (100, 80), *, gray: bool = False) -> str:
    for name, color in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        for number in range(4):
            file = picture(path / name / f"{name}{number}.png", (120, 120, 120) if gray else color, size)
            if gray:
                from PIL import Image

                Image.open(file).convert("L").save(file)
    return str(path)


def test_photographs_are_fine_tuned(tmp_path: Path) -> None:
    plan = resolve(folder_of(tmp_path / "photos"), None, {})
    config = plan.config
    assert (config.network.network, config.network.pretrained, config.network.tune) == (
        photographs.NETWORK,
        True,
        "top",
    )
    assert (config.method, config.training.optimizer, config.data.image_size) == (
        photographs.FINE_TUNING_METHOD,
        "adamw",
        260,
    )
    assert (config.views.padding, config.views.cutout) == (26, 98)
    text = describe_plan(plan)
    assert text is not None
    assert "--network efficientnet-lite2" in text
    assert "starting from pretrained weights of efficientnet-lite2 (--no-pretrained for random ones)" in text


def test_another_network_of_the_family_has_the_same_settings_at_its_own_size(tmp_path: Path) -> None:
    photos = folder_of(tmp_path / "photos")
    usual, larger = (resolve(photos, None, given).config for given in ({}, {"network": "efficientnet-lite1"}))
    assert larger.method == usual.method
    assert larger.network == replace(usual.network, network="efficientnet-lite1")
    assert larger.training == usual.training
    assert (larger.data.image_size, larger.views.padding, larger.views.cutout) == (240, 24, 90)
    assert resolve(photos, None, {"network": "efficientnet-lite0", "image_size": 96}).config.data.image_size == 96


@pytest.mark.parametrize(
    ("given", "final_head"),
    [
        ({}, "fitted"),
        ({"rebalance": "none"}, "fitted"),
        ({"rebalance": "crest"}, "trained"),
        ({"balanced": True}, "trained"),
        ({"initial_head": "random"}, "trained"),
        ({"rebalance": "crest", "final_head": "fitted"}, "fitted"),
    ],
)
def test_the_head_is_fitted_again_at_the_end_unless_classes_are_to_be_balanced(
    given: dict[str, Any], final_head: str, tmp_path: Path
) -> None:
    assert resolve(folder_of(tmp_path / "photos"), None, given).config.training.final_head == final_head


@pytest.mark.parametrize(
    ("method", "given", "final_weights"),
    [
        (None, {}, "judged"),
        (None, {"network": "efficientnet-lite0", "learning_rate": 0.01}, "judged"),
        ("softmatch", {}, "trained"),
        ("softmatch", {"final_weights": "judged"}, "judged"),
        (None, {"steps": 60}, "trained"),
        (None, {"tune": "all"}, "trained"),
        (None, {"trained_share": 0.5}, "trained"),
        (None, {"balanced": True}, "trained"),
    ],
)
def test_evidence_decides_unless_training_is_asked_for(
    method: str | None, given: dict[str, Any], final_weights: str, tmp_path: Path
) -> None:
    assert resolve(folder_of(tmp_path / "photos"), method, given).config.training.final_weights == final_weights


def test_a_smaller_network_is_used_if_only_its_weights_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(photographs, "missing_weights", lambda name: "of rain" if name.endswith("2") else None)
    config = resolve(folder_of(tmp_path / "photos"), None, {}).config
    assert (config.network.network, config.network.pretrained, config.data.image_size) == (
        "efficientnet-lite0",
        True,
        224,
    )
    assert "efficientnet-lite0 is used, because of rain" in caplog.text


def test_a_method_gets_only_the_hyperparameters_it_has(tmp_path: Path) -> None:
    photos = folder_of(tmp_path / "photos")
    assert resolve(photos, "fixmatch-ra", {}).config.hyperparameters["threshold"] == 0.8
    assert resolve(photos, "fixmatch-ra", {"threshold": 0.9}).config.hyperparameters["threshold"] == 0.9
    assert resolve(photos, "supervised", {}).config.hyperparameters == {}


@pytest.mark.parametrize(
    "given",
    [{"network": "wrn-16-2"}, {"pretrained": False}, {"image_size": 32}, {"network": "small", "image_size": 128}],
)
def test_other_wishes_come_first(given: dict[str, Any], tmp_path: Path) -> None:
    config = resolve(folder_of(tmp_path / "photos"), None, given).config
    assert (config.method, config.network.pretrained, config.network.tune) == ("rankingmatch-bm", False, "all")
    assert config.data.image_size == given.get("image_size", 32)


@pytest.mark.parametrize("kind", ["small", "gray"])
def test_small_and_grayscale_images_are_not_photographs(kind: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "glyphs", (40, 40) if kind == "small" else (100, 80), gray=kind == "gray")
    assert not resolve(folder, None, {}).config.network.pretrained


def test_a_named_dataset_keeps_its_settings_unless_pretrained_weights_are_asked_for() -> None:
    assert resolve("stl10", None, {}).config.network.network == "wrn-37-2"
    config = resolve("stl10", None, {"pretrained": True}).config
    assert (config.network.network, config.network.tune) == (photographs.NETWORK, "top")
    assert (config.training.optimizer, config.data.image_size) == ("adamw", 260)
    assert config.views.padding == round(0.1 * 260)
    assert config.training.steps == photographs.FINE_TUNING["steps"]


def test_without_the_weights_there_is_a_sentence_and_training_starts_from_random_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(photographs, "missing_weights", lambda name: f"the weights of {name} are not installed")
    with caplog.at_level(logging.WARNING):
        config = resolve(folder_of(tmp_path / "photos"), None, {}).config
    assert (config.network.pretrained, config.data.image_size) == (False, 32)
    assert "random weights, because the weights of efficientnet-lite2 are not installed" in caplog.text


def test_the_model_card_names_the_weights_and_their_license(tmp_path: Path) -> None:
    given: dict[str, Any] = {"steps": 1, "batch_size": 4, "mu": 1, "bank_views": 1, "image_size": 64, "threads": 1}
    run = train(folder_of(tmp_path / "photos"), method="supervised", out=tmp_path / "run", report=False, **given)
    text = run.card_path.read_text()
    assert "| pretrained weights | EfficientNet-Lite2, trained on ImageNet-1k; license Apache-2.0; " in text


@pytest.mark.slow
def test_the_model_card_and_the_last_line_say_what_was_kept_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evidence, "STEPS", 1)
    given: dict[str, Any] = {"labels": 4, "validation": 0, "final_weights": "judged", "steps": 1, "batch_size": 4}
    given |= {"mu": 1, "image_size": 64, "threads": 1, "report": False, "verbose": True}
    run = train(folder_of(tmp_path / "photos"), out=tmp_path / "run", **given)
    (kept,) = (line for line in run.card_path.read_text().splitlines() if line.startswith("| final weights |"))
    sentence = kept.removeprefix("| final weights | ").removesuffix(" |")
    assert "on 4 labeled images that were not trained on" in sentence
    assert capsys.readouterr().err.splitlines()[-1] == sentence


def test_a_run_starts_from_a_fitted_head_and_resumes_with_the_trained_one(tmp_path: Path) -> None:
    given = {"steps": 2, "batch_size": 4, "mu": 1, "threads": 1, "image_size": 64}
    plan = resolve(folder_of(tmp_path / "photos"), "supervised", given)
    whole, halved = Run(tmp_path / "whole"), Run(tmp_path / "halved")
    job = start(whole, plan)
    assert job.state.model.state_dict()["backbone.classifier.center"].abs().sum() > 0
    for _ in training_records(job):
        pass
    next(training_records(start(halved, plan), stopped=lambda: True))
    for _ in training_records(start(halved, plan)):
        pass
    assert halved.model_path.read_bytes() == whole.model_path.read_bytes()
