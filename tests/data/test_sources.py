"""The contract of sources: named datasets and folders know what they hold, and a folder is scanned once."""

import os
import pickle
from pathlib import Path
from unittest.mock import Mock

import pytest

from rankingmatch.augment import ViewSettings
from rankingmatch.core.errors import ConfigError
from rankingmatch.core.options import options_of
from rankingmatch.data import BENCHMARKS, Source, dataset_title, find_source, image_folder, suggested_settings
from rankingmatch.data.benchmarks import DEFAULT_LENGTHS
from rankingmatch.data.folder_contents import scan_folder
from rankingmatch.runs.config import all_option_names, assemble


@pytest.fixture(params=[*BENCHMARKS, "folder"])
def source(request: pytest.FixtureRequest, photos: Path) -> Source:
    return find_source(str(photos) if request.param == "folder" else request.param)


def test_a_source_knows_what_it_holds_and_is_found_again_by_its_name(source: Source) -> None:
    height, width, channels = source.shape
    assert height == width > 0
    assert channels in (1, 3)
    assert source.classes >= 2
    assert source.evaluated > 0
    assert source.description
    assert source.is_folder == (source.name not in BENCHMARKS)
    again = find_source(source.name)
    assert again == source
    assert again.title == dataset_title(source.name) == source.title
    restored = pickle.loads(pickle.dumps(source))
    assert (restored.name, restored.shape, restored.preset()) == (source.name, source.shape, source.preset())


def test_presets_are_options_and_their_lengths_follow_the_image_size(source: Source) -> None:
    defaults = {option.name: option.default for option in options_of(ViewSettings)}
    assert {name: defaults[name] for name in DEFAULT_LENGTHS} == DEFAULT_LENGTHS
    native = {**defaults, **source.preset()}
    source.preset().clear()  # a caller may change it
    twice = source.preset(2 * source.shape[0])
    for name in ("padding", "cutout"):
        assert abs(twice[name] - 2 * native[name]) <= 1, name
    assert source.preset(source.shape[0]) == {name: native[name] for name in twice}
    assert set(twice) <= all_option_names()
    assert twice.get("image_size") == (2 * source.shape[0] if source.is_folder else None)


@pytest.mark.parametrize("name", ["digits", "folder"])
@pytest.mark.parametrize("image_size", [None, 10])
def test_images_are_as_announced(name: str, image_size: int | None, photos: Path) -> None:
    source = find_source(str(photos) if name == "folder" else name)
    dataset = source.load(image_size=image_size)
    side = image_size or source.shape[0]
    assert dataset.train.images.shape[1:] == (side, side, source.shape[2])
    assert len(dataset.classes) == source.classes
    held_out = source.preset()["validation"]
    evaluated = sum(len(part) for part in (dataset.validation, dataset.test) if part is not None)
    assert evaluated + (0 if source.is_folder else held_out) == source.evaluated


@pytest.mark.parametrize("count", [1, 1797, 4999, 5000, 20_000, 10**8])
@pytest.mark.parametrize("side", [8, 32, 64, 224])
def test_every_size_and_number_of_images_gets_settings_of_the_right_type_and_range(side: int, count: int) -> None:
    config = assemble("digits", "rankingmatch-bm", suggested_settings(side, side, 3, count))
    assert config.training.steps is not None
    assert 1000 <= config.training.steps <= 100_000


def test_a_folder_is_scanned_once(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan, list_directory = Mock(wraps=scan_folder), Mock(wraps=os.scandir)
    monkeypatch.setattr(image_folder, "scan_folder", scan)
    monkeypatch.setattr(os, "scandir", list_directory)
    source = find_source(str(photos))
    source.preset()
    source.preset(16)
    assert source.description
    source.load()
    assert scan.call_count == 1
    listed = [str(call.args[0]) for call in list_directory.call_args_list]
    folders = [path for path in listed if path.startswith(str(photos))]
    assert len(folders) == len(set(folders)) == 16  # it, three parts with three classes each, and unlabeled/deep/er


def test_a_relative_path_is_the_same_folder(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    assert find_source("photos") == find_source("./photos") == find_source(str(photos))
    for name, problem in (("./nowhere", "no folder"), ("digit", "did you mean 'digits'"), ("", "data is empty")):
        with pytest.raises(ConfigError, match=problem):
            find_source(name)
    with pytest.raises(ConfigError, match="unlabeled is"):
        find_source("digits", unlabeled="somewhere")


def test_reading_reports_progress_up_to_the_number_of_files(photos: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []
    source, scanning = find_source(str(photos)), "looking for changes in photos"
    source.load(progress=lambda task, done, total: reports.append((task, done, total)))
    assert reports[:2] == [(scanning, 0, None), (scanning, 1, 1)]
    assert reports[-1] == ("reading photos", 33, 33)
    assert [done for _, done, _ in reports[2:]] == sorted(done for _, done, _ in reports[2:])
    reports.clear()
    source.load(progress=lambda task, done, total: reports.append((task, done, total)))
    assert reports == [(scanning, 0, None), (scanning, 1, 1)]  # from the cache
