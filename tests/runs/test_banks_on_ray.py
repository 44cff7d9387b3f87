"""Banks that are computed on Ray have the bytes of those of one process, also if workers are killed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from on_ray import dying_task, needs_ray
from tiny import CPU, VIEW_SETTINGS, tiny_settings

from rankingmatch.data import Dataset, Images, Split, assemble_split
from rankingmatch.methods import make_method
from rankingmatch.networks import NetworkSettings
from rankingmatch.runs import ray as module
from rankingmatch.runs.ray import banks_on_ray, ray_connection
from rankingmatch.training.banks import AT_ONCE, Frozen, make_bank
from rankingmatch.training.state import initial_state

VIEWS = replace(VIEW_SETTINGS, bank_views=1)
IMAGES = 6 * AT_ONCE + 1  # the last piece has a single image


@pytest.fixture(scope="module")
def split() -> Split:
    rng = np.random.default_rng(0)

    def images(count: int) -> Images:
        return Images(rng.integers(0, 256, (count, 32, 32, 1)).astype(np.uint8), np.arange(count) % 3)

    return assemble_split(Dataset(("a", "b", "c"), images(IMAGES), None, images(6)), np.arange(6), np.arange(0))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with ray_connection(None):
        yield


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 1)  # one batch


def files(cache: Path, split: Split, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, bytes]:
    """The files of a new bank."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    network = NetworkSettings("efficientnet-lite0", tune="top")
    state = initial_state(split, make_method("fixmatch-ra"), network, VIEWS, tiny_settings(), CPU)
    make_bank(state, split, VIEWS, **options)
    found = sorted(cache.rglob("*.npy"))
    return {str(path.relative_to(cache)): path.read_bytes() for path in found}


@needs_ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("by", ["torch", "onnx"])
def test_the_files_are_those_of_one_process_though_workers_are_killed(
    by: str, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "onnx":  # as if there were enough images; the workers are told, too
        make = Frozen.__init__
        monkeypatch.setattr(Frozen, "__init__", lambda frozen, model, device, _: make(frozen, model, device, 10**6))
    expected = files(tmp_path / "here", split, monkeypatch)
    steps: list[int] = []

    def note(_: str, done: int, total: int | None) -> None:
        assert total in (2 * IMAGES, 6)
        steps.append(done)

    calls = tmp_path / "calls"
    monkeypatch.setattr(module, "_maps", dying_task(module._maps, calls, at=(3, 9)))
    found = files(tmp_path / "ray", split, monkeypatch, progress=note, computer=lambda: banks_on_ray(None))
    assert calls.stat().st_size == len(steps) + 2
    assert {Path(name).name for name in found} == {"weak-0.npy", "strong-0.npy", "unchanged.npy"}
    assert found == expected
    ends = [*range(AT_ONCE, IMAGES, AT_ONCE), IMAGES]
    assert steps == [*ends, *(IMAGES + end for end in ends), 6]


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_a_bank_that_is_there_needs_no_cluster(split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, split, monkeypatch)
    monkeypatch.setattr(module, "ray_connection", lambda _: pytest.fail("connected"))
    files(tmp_path, split, monkeypatch, computer=lambda: banks_on_ray(None))
