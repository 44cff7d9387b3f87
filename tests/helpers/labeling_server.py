"""A labeling server for tests, in this process."""

from pathlib import Path
from typing import Any

from image_folders import COLORS, picture
from starlette.testclient import TestClient

from rankingmatch.labeling.folder import open_session
from rankingmatch.labeling.security import Access
from rankingmatch.labeling.server import make_app
from rankingmatch.labeling.session import Session
from rankingmatch.labeling.training import Training

ACCESS = Access("secret-token", 8765)
ADDRESS = f"http://127.0.0.1:{ACCESS.port}"


def colored_pictures(folder: Path, count: int = 30, size: tuple[int, int] = (24, 20)) -> Path:
    """Unlabeled images in one folder; those of the same color have numbers that are equal modulo 3."""
    for number in range(count):
        picture(folder / f"{number:03d}.png", list(COLORS.values())[number % len(COLORS)], size)
    return folder


class Page:
    """What the page does: a client with the token, which posts JSON."""

    def __init__(self, session: Session, runs: Path | None = None) -> None:
        self.session = session
        self.training = Training(session, runs or session.root.parent / "runs")
        self.client = TestClient(make_app(session, self.training, ACCESS), ADDRESS, raise_server_exceptions=False)
        self.client.get("/", params={"token": ACCESS.token}, follow_redirects=False)

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON that a GET request gives."""
        response = self.client.get(path, params=parameters)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        """The JSON that a POST request gives."""
        response = self.client.post(path, json=body, headers={"Origin": ADDRESS})
        assert response.status_code == status, response.text
        return response.json()

    def label(self, number: int, choice: int | str | None, status: int = 200) -> Any:
        """Label a picture."""
        return self.post("/label", status, client="me", number=number, origin="hand", **{"class": choice})

    @property
    def state(self) -> Any:
        """The state."""
        return self.get("/state")


def open_page(folder: Path, **options: Any) -> Page:
    """A page for a folder."""
    return Page(open_session(folder, **options))
