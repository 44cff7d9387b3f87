"""Downloads against a server on this machine: checked, resumed, and never half there."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from rankingmatch.data.files import File, download

CONTENT = bytes(range(256)) * 4000


class Server(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, whole or from the byte that is asked for, and remembers what was asked."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        Server.asked.append(wanted)
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
    Server.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/file.bin"
        server.shutdown()


def right(address: str) -> File:
    return File(address, hashlib.md5(CONTENT).hexdigest())


def test_a_file_arrives_whole(address: str, tmp_path: Path) -> None:
    download(right(address), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("have", [1, 700_000, len(CONTENT)])
def test_an_interrupted_download_goes_on_where_it_stopped(have: int, address: str, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:have])
    download(right(address), tmp_path)
    assert Server.asked == [f"bytes={have}-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_file_that_is_not_the_original_is_refused_and_removed(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hash"):
        download(File(address, "0" * 32), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_not_fetched_again(address: str, tmp_path: Path) -> None:
    download(right(address), tmp_path)
    download(right(address), tmp_path)
    assert len(Server.asked) == 1
