"""Pretrained weights and learning rates of backbones, on a small substitute with timm's interface.

The models of timm are tested in test_timm.py; their weights would have to be downloaded.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fake_timm
import numpy as np
import pytest
import torch
from image_folders import class_folders
from safetensors.torch import save_file
from tiny import CPU, VIEW_SETTINGS, tiny_settings, tiny_split

from rankingmatch import RankingMatchClassifier
from rankingmatch.core.errors import ConfigError
from rankingmatch.methods import make_method
from rankingmatch.networks import NetworkSettings, make_backbone, make_classifier
from rankingmatch.networks.classifier import TimmBackbone, head_parameters
from rankingmatch.runs.config import resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records
from rankingmatch.training.loop import train
from rankingmatch.training.settings import TrainSettings
from rankingmatch.training.state import State, initial_state

MEAN, STD = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.3, 0.2, 0.1])


@pytest.fixture(autouse=True)
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", fake_timm)


def begun(network: NetworkSettings, settings: TrainSettings | None = None, channels: int = 3) -> State:
    method = make_method("rankingmatch-bm", {})
    return initial_state(
        tiny_split(channels=channels), method, network, VIEW_SETTINGS, settings or tiny_settings(), CPU
    )


@pytest.mark.parametrize("network", ["timm:fakenet", "fake_timm:own_factory"])
def test_pretrained_weights_and_statistics_are_where_training_starts(network: str) -> None:
    state = begun(NetworkSettings(network, pretrained=True))
    backbone = state.model.backbone
    assert isinstance(backbone, TimmBackbone)
    assert (backbone.model.stem.weight == 0.01).all()
    assert (backbone.model.norm.running_mean == 0.25).all()  # the trial pass has not touched it
    assert backbone.model.norm.num_batches_tracked == 0
    assert not (begun(NetworkSettings(network)).model.backbone.model.stem.weight == 0.01).any()  # type: ignore[union-attr]


# --- weights from a file -------------------------------------------------------------------------------------


def weights_of(classes: int = 3, channels: int = 3, without: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    tensors = fake_timm.create_model("fakenet", True, classes, channels).state_dict()
    return {name: tensors[name] for name in tensors.keys() - set(without)}


@pytest.mark.parametrize(
    ("tensors", "outcome"),
    [
        (weights_of(), ""),
        (weights_of(classes=1000), "initialized randomly: fc.bias, fc.weight"),
        (weights_of(without=["fc.weight", "fc.bias"]), "initialized randomly: fc.bias, fc.weight"),
        (weights_of(without=["fc.bias"]), "initialized randomly: fc.bias, fc.weight"),
        (weights_of(without=["norm.bias"]), "refused: 1 missing, such as norm.bias"),
        ({**weights_of(), "more": torch.zeros(1)}, "refused: 1 unknown, such as more"),
        (weights_of(channels=1), "refused: 1 of a different shape, such as stem.weight"),
        (
            make_backbone("wrn-10-1", 3, 3).state_dict(),
            "refused: 40 unknown, such as blocks.0.conv1.weight; 5 of a different shape, such as norm.bias",
        ),
    ],
)
def test_weights_that_fit_are_loaded_and_only_a_head_may_differ(
    tensors: dict[str, torch.Tensor], outcome: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "w.safetensors"
    save_file(tensors, path)
    if outcome.startswith("refused: "):
        message = rf"^weights: .*w.safetensors .*'timm:fakenet': .*{outcome.removeprefix('refused: ')}"
        with pytest.raises(ConfigError, match=message):
            make_classifier("timm:fakenet", 3, MEAN, STD, weights=str(path))
        return
    backbone = make_classifier("timm:fakenet", 3, MEAN, STD, weights=str(path)).backbone
    found = backbone.model.state_dict()  # type: ignore[union-attr]
    head = {"fc.weight", "fc.bias"} if outcome else set()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors.keys() - head)
    assert found["fc.weight"].shape == (3, 6)
    assert [line.rpartition("; ")[2].endswith(outcome) for line in caplog.messages] == [True] * bool(outcome)


def test_a_saved_model_is_loaded_with_its_normalization(tmp_path: Path) -> None:
    images, labels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3)).astype(np.uint8), np.arange(12) % 4
    for network in ("wrn-10-1", "timm:fakenet"):
        path = tmp_path / "first.safetensors"
        first = RankingMatchClassifier("supervised", network=network, steps=1, threads=1).fit(images, labels)
        first.save(path)
        model = make_classifier(network, 3, MEAN, STD, weights=str(path))
        assert torch.equal(model.mean, first.model_.mean)
        own, expected = model.state_dict(), first.model_.state_dict()
        head = {f"backbone.{name}" for name in head_parameters(model.backbone)}
        assert len(head) == 2
        assert all(torch.equal(own[name], expected[name]) for name in own.keys() - head)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"network": "timm:"}, "write timm:NAME"),
        ({"network": "timm:fakenet@big"}, "timm:NAME@SIDE"),
        ({"network": "wrn-10-1", "pretrained": True}, "no weights for 'wrn-10-1'"),
        ({"network": "own_network:linear_network", "pretrained": True}, r"\(channels, classes, pretrained=True\)"),
        ({"network": "own_network:linear_network"}, "needs a network with a linear head on a backbone"),
        (
            {"network": "timm:fakenet", "weights": "nowhere.safetensors"},
            "weights: there is no file nowhere.safetensors",
        ),
        ({"network": "timm:fakenet", "weights": __file__}, "not a safetensors file"),
        (
            {"network": "timm:fakenet", "weights": "a", "pretrained": True},
            "pretrained and weights are mutually exclusive",
        ),
    ],
)
def test_a_network_that_cannot_be_made_gives_a_one_line_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        begun(NetworkSettings(**given), tiny_settings(backbone_learning_rate=0.01))
    assert "\n" not in str(error.value)


def test_a_timm_that_cannot_be_imported_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r"pip install 'rankingmatch\[timm\]'"):
        make_backbone("timm:fakenet", 3, 4)
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "timm")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"RuntimeError: operator .* torchvision that was built for this torch"):
        make_backbone("timm:fakenet", 3, 4)


# --- the backbone's learning rate ----------------------------------------------------------------------------


def test_the_backbone_has_its_own_learning_rate_and_the_head_the_base_rate() -> None:
    settings = tiny_settings(steps=4, learning_rate=0.2, backbone_learning_rate=0.02)
    state = begun(NetworkSettings("timm:fakenet"), settings)
    split = tiny_split(channels=3)
    rates = {id(p): group for group in state.optimizer.param_groups for p in group["params"]}
    for record in train(state, split, settings):
        if record.step == 3:
            break
    for name, parameter in state.model.backbone.named_parameters():
        group = rates[id(parameter)]
        decay = np.cos(7 * np.pi * 2 / (16 * 4))  # of the third step
        assert group["lr"] == pytest.approx((0.2 if "fc" in name else 0.02) * decay), name
        assert group["weight_decay"] == (0.0005 if parameter.ndim > 1 else 0), name


def test_a_rate_of_0_trains_the_head_alone_and_the_methods_own_one() -> None:
    settings = tiny_settings(steps=3, learning_rate=0.2, backbone_learning_rate=0)
    method = make_method("remixmatch", {})
    state = initial_state(tiny_split(), method, NetworkSettings("wrn-10-1"), VIEW_SETTINGS, settings, CPU)
    before = {name: value.clone() for name, value in state.objective.named_parameters()}
    for _ in train(state, tiny_split(), settings):
        pass
    moved = {name for name, value in state.objective.named_parameters() if not torch.equal(value, before[name])}
    own = dict(state.objective.method.named_parameters())
    assert moved == {"model.backbone.head.weight", "model.backbone.head.bias", *(f"method.{name}" for name in own)}
    bases = {id(p): group["base"] for group in state.optimizer.param_groups for p in group["params"]}
    assert {bases[id(p)] for p in own.values()} == {0.2}


# --- from end to end -----------------------------------------------------------------------------------------


def test_an_interrupted_run_resumes_from_its_checkpoint_not_from_the_pretrained_weights(tmp_path: Path) -> None:
    given = {"steps": 6, "batch_size": 8, "mu": 1, "threads": 1, "network": "timm:fakenet", "pretrained": True}
    plan = resolve("digits", "fixmatch-ra", {**given, "backbone_learning_rate": 0.01})
    whole, halved = Run(tmp_path / "whole"), Run(tmp_path / "halved")
    list(training_records(start(whole, plan)))
    next(training_records(start(halved, plan), stopped=lambda: True))
    assert not halved.model_path.exists()
    list(training_records(start(halved, plan)))
    assert halved.model_path.read_bytes() == whole.model_path.read_bytes()
    loaded = RankingMatchClassifier.load(whole.model_path)
    assert loaded.network == "timm:fakenet"
    assert loaded.model_.mean.item() == pytest.approx(0.4)
    assert loaded.predict_proba(np.zeros((2, 8, 8), np.uint8)).shape == (2, 10)


def test_the_images_of_a_folder_are_read_at_the_input_size_of_the_network(tmp_path: Path) -> None:
    folder = str(class_folders(tmp_path / "photos", size=(70, 90)))
    for data, network, side in (
        (folder, "wrn-10-1", 32),
        (folder, "timm:fakenet", 12),
        (folder, "timm:fakenet@20", 20),
        ("digits", "timm:fakenet", None),
    ):
        assert resolve(data, "supervised", {"network": network}).config.data.image_size == side
    given = {"network": "timm:fakenet", "image_size": 24}
    assert resolve(folder, "supervised", given).config.data.image_size == 24
