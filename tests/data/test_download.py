"""Downloads from a local server: verified, resumed, and never incomplete."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from rankingmatch.data.files import download

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, from the first or the requested byte, and records the requests."""

    requested: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        Server.requested.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start:])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Server.requested.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/file.bin"
        server.shutdown()


@pytest.mark.parametrize("have", [0, 1, 700_000, len(CONTENT)])
def test_a_file_is_downloaded_once_from_where_it_was_interrupted(have: int, address: str, tmp_path: Path) -> None:
    if have:
        (tmp_path / "file.bin.part").write_bytes(CONTENT[:have])
    reports: list[tuple[str, int, int | None]] = []
    for _ in range(2):
        download(address, MD5, tmp_path, lambda *report: reports.append(report))
    assert Server.requested == [f"bytes={have}-" if have else None]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
    if have < len(CONTENT):
        assert reports[-1] == ("downloading file.bin", len(CONTENT), len(CONTENT))
        assert reports[0][1] > have


def test_a_file_with_another_checksum_is_deleted(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hash"):
        download(address, "0" * 32, tmp_path)
    assert list(tmp_path.iterdir()) == []
