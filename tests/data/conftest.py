"""What the tests of data share: an empty cache, and a folder with all parts of a dataset."""

from pathlib import Path

import pytest
from image_folders import class_folders, picture


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RANKINGMATCH_DATA", raising=False)
    return tmp_path / "cache/rankingmatch/decoded"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """labeled/, unlabeled/ (nested), val/ and test/, with 12, 6, 6 and 9 images."""
    folder = tmp_path / "photos"
    class_folders(folder / "labeled")
    class_folders(folder / "val", each=2)
    class_folders(folder / "test", each=3)
    for number in range(6):
        picture(folder / "unlabeled" / ("deep/er" if number % 2 else ".") / f"{number}.png")
    return folder
