"""Weights from an installed package: only the known file is read, and a damaged cache is replaced."""

import hashlib
import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rankingmatch.core.errors import ConfigError
from rankingmatch.networks import make_backbone
from rankingmatch.networks.efficientnet_lite import VARIANTS, Variant, load_packaged, tensors_checksum

TENSORS = {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.count": torch.tensor(3)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Variant:
    """A package whose code cannot be run, with a file of two tensors."""
    torch.save({f"_{name}": value for name, value in TENSORS.items()}, tmp_path / "toy.pth")
    content = (tmp_path / "toy.pth").read_bytes()
    variant = Variant(9, 1.0, 1.0, 32, hashlib.sha256(content).hexdigest(), tensors_checksum(TENSORS))
    folder = tmp_path / "site" / variant.package
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    (folder / "models" / f"efficientnet-lite9-{variant.sha256[:8]}.pth").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return variant


def is_toy(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors.keys() == TENSORS.keys() and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_the_tensors_are_read_once_and_then_come_from_the_cache(toy: Variant) -> None:
    assert is_toy(load_packaged(toy, TENSORS))
    assert toy.package not in sys.modules
    assert list(toy.cached.parent.iterdir()) == [toy.cached]
    assert toy.path is not None
    toy.path.unlink()
    assert is_toy(load_packaged(toy, TENSORS))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other tensors", "a directory"])
def test_a_damaged_cache_is_replaced(damage: str, toy: Variant, caplog: pytest.LogCaptureFixture) -> None:
    load_packaged(toy, TENSORS)
    content = toy.cached.read_bytes()
    if damage == "other tensors":
        save_file({**TENSORS, "layer.weight": torch.zeros(2, 3)}, toy.cached)
    elif damage == "a directory":
        toy.cached.unlink()
        toy.cached.mkdir()
    else:
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        toy.cached.write_bytes({"empty": b"", "cut": content[:-9], "flipped": flipped}[damage])
    assert is_toy(load_packaged(toy, TENSORS))
    if damage == "a directory":  # it cannot be replaced, and the weights are there all the same
        assert "converted again" in caplog.text
    else:
        assert is_toy(load_file(toy.cached))


def test_a_cache_that_cannot_be_written_is_a_warning(
    toy: Variant, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("a file where the directory should be")
    assert is_toy(load_packaged(toy, TENSORS))
    assert str(toy.cached) in caplog.text


@pytest.mark.parametrize("damage", ["another file", "missing"])
def test_another_file_is_refused_without_unpickling_it_and_nothing_is_written(
    damage: str, toy: Variant, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpickled(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(torch, "load", unpickled)
    assert toy.path is not None
    toy.path.unlink() if damage == "missing" else toy.path.write_bytes(toy.path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=rf"checksum .*pip install {toy.package}==0\.1\.0$") as error:
        load_packaged(toy, TENSORS)
    assert error.value.settings == ("pretrained",)
    assert "\n" not in str(error.value)
    assert not cache.exists()


@pytest.mark.parametrize("name", VARIANTS)
def test_without_the_package_the_error_names_the_command_that_installs_it(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"pip install {VARIANTS[name].package}==0\.1\.0$") as error:
        make_backbone(name, 3, 10, pretrained=True)
    assert error.value.settings == ("pretrained",)
    assert not cache.exists()


@pytest.mark.parametrize("name", VARIANTS)
def test_the_pinned_checksums_are_those_of_the_packages(name: str) -> None:
    pytest.importorskip(VARIANTS[name].package)
    tensors = load_packaged(VARIANTS[name], make_backbone(name, 3, 10).state_dict())
    assert tensors_checksum(tensors) == VARIANTS[name].tensors_sha256
    assert tensors_checksum(load_file(VARIANTS[name].cached)) == VARIANTS[name].tensors_sha256
