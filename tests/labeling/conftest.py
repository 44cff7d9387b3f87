"""Pages whose sessions end with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from labeling_server import Page, colored_images

from rankingmatch.labeling.folder import open_session
from rankingmatch.labeling.session import Session


@pytest.fixture
def open_one() -> Iterator[Callable[..., Session]]:
    """Opens a session; opened again, it is as if the server was started again."""
    opened: list[Session] = []

    def close() -> None:
        while opened:
            opened.pop().journal.close()

    def open_next(folder: Path, *arguments: Any, **options: Any) -> Session:
        close()
        opened.append(open_session(folder, *arguments, **options))
        return opened[0]

    yield open_next
    close()


@pytest.fixture
def open_page(open_one: Callable[..., Session]) -> Callable[..., Page]:
    """Opens the page of a folder."""
    return lambda folder, **options: Page(open_one(folder, **options))


@pytest.fixture
def page(tmp_path: Path, open_page: Callable[..., Page]) -> Page:
    """The page of 30 images."""
    return open_page(colored_images(tmp_path / "photos"), classes=("red", "green", "blue"))
