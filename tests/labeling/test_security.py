"""Nobody without the token, and no other page, can see or change anything, or keep others from it."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from labeling_server import ACCESS, ADDRESS, Page, ServerThread, colored_images, stranger

from rankingmatch.core.errors import ConfigError
from rankingmatch.labeling import server as server_module
from rankingmatch.labeling.security import MOST_BYTES, Access

PAGES = ["/", "/state", "/events", "/next?client=a", "/image/0", "/grid?class=0", "/mistakes", "/history"]
POSTS = ["/label", "/undo", "/classes", "/accept", "/train", "/train/stop", "/export"]
JSON = {"Origin": ADDRESS, "Content-Type": "application/json"}


@pytest.mark.parametrize("path", [*PAGES, "/page/label.js", "/?xtoken=1", "/?token=", "/?token=wrong"])
@pytest.mark.parametrize("cookie", [None, "", "wrong", "secret-tokeN", "secret-token-and-more", "ä"])
def test_nothing_is_shown_without_the_token(page: Page, path: str, cookie: str | None) -> None:
    headers = {} if cookie is None else {b"Cookie": f"{ACCESS.cookie}={cookie}".encode()}
    response = stranger(page).get(path, headers=headers, follow_redirects=False)
    assert (response.status_code, "address" in response.text) == (403, True)
    assert "000.png" not in response.text
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://127.0.0.1:8765", "http://127.0.0.1"])
@pytest.mark.parametrize("path", POSTS)
def test_another_page_cannot_post(page: Page, path: str, origin: str | None) -> None:
    body = {"client": "x", "number": 0, "class": 0, "numbers": [0], "add": "x"}
    headers = {} if origin is None else {"Origin": origin}
    assert page.client.post(path, json=body, headers=headers).status_code == 403
    assert stranger(page).post(path, json=body, headers={"Origin": ADDRESS}).status_code == 403  # without the token
    assert not page.session.journal.path.exists()


def test_the_address_with_the_token_gives_a_strict_cookie_and_hides_the_token(page: Page) -> None:
    client = stranger(page)
    response = client.get("/", params={"token": ACCESS.token}, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, "/")
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/state").status_code == 200


def test_a_name_that_an_attacker_pointed_here_is_refused(page: Page) -> None:
    others = ("evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:8765", "")
    for host in (*others, "192.168.0.7:8765"):
        assert page.client.get("/state", headers={"Host": host}).status_code == 403
    for host in ("127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"):
        cookie = f"{ACCESS.cookie}={ACCESS.token}"
        assert page.client.get("/state", headers={"Host": host, "Cookie": cookie}).status_code == 200
    network = Access("token", 8765, "0.0.0.0")
    assert network.is_own_host("192.168.0.7:8765")
    assert not any(map(network.is_own_host, others[:2]))
    for host in ("", " "):  # would be all addresses
        with pytest.raises(ConfigError, match="host"):
            server_module.listen(host, 0)


LARGE = json.dumps({"add": "x" * (MOST_BYTES + 1)}).encode()


@pytest.mark.parametrize(
    ("content", "status"),
    [
        *((content, 400) for content in (b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5000)),
        *((content, 413) for content in (LARGE, [LARGE[:65536]] * 17)),  # at once, and in pieces
    ],
)
def test_a_body_that_is_large_or_no_object_is_refused(page: Page, content: bytes | list[bytes], status: int) -> None:
    body = content if isinstance(content, bytes) else iter(content)
    assert page.client.post("/classes", content=body, headers=JSON).status_code == status
    assert len(page.state["classes"]) == 3


@pytest.mark.parametrize("number", ["-1", "99999999999999999999", "9" * 5000, "x", "1.5", "٣" * 13])
def test_a_number_that_is_none_is_a_bad_request(page: Page, number: str) -> None:
    for path in (f"/image/{number}", f"/next?client=a&count={number}", f"/history?at={number}"):
        response = page.client.get(path)
        assert response.status_code == 400 or (response.status_code == 200 and number == "-1")


@pytest.mark.parametrize("folder", ["image", "page", "report"])
@pytest.mark.parametrize("name", ["../server.py", "..%2fserver.py", "%2e%2e", "%2e%2e%2fetc", "", "server.py"])
def test_no_path_leads_out(page: Page, folder: str, name: str) -> None:
    (page.session.root / "report.html").write_text("import")
    response = page.client.get(f"/{folder}/{name}")
    assert response.status_code in (400, 404)
    assert "import" not in response.text


@pytest.mark.parametrize("path", ["/", "/state", "/image/0", "/page/label.js", "/nothing", "/image/999", "/report/one"])
def test_every_answer_has_the_headers_that_protect_the_page(page: Page, path: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<p>report")
    page.training._runs["one"] = tmp_path
    for client in (page.client, stranger(page)):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        if path == "/report/one" and client is page.client:
            assert policy.startswith("sandbox allow-scripts")  # its scripts are its own
            assert "allow-same-origin" not in policy
        else:
            sources = "script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
            assert policy.startswith(f"default-src 'none'; {sources}")
            assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_other_methods_and_forms_of_other_pages_are_refused(page: Page) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert page.client.request(method, "/state").status_code == 405
    assert page.client.get("/label").status_code == 405
    headers = {**JSON, "Content-Type": "text/plain"}
    assert page.client.post("/classes", content='{"add": "teal"}', headers=headers).status_code == 415


def test_names_are_only_text(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    folder, classes = tmp_path / "folder", ("</script><script>", "=1+1", "class:", "none")
    for name in ("<img src=x onerror=alert(1)>", '"quoted",and\nbroken', "..png", "\udcff\udcfe", "=cmd()"):
        colored_images(folder, 1).joinpath("000.png").rename(folder / f"{name}.png")
    page = open_page(folder, classes=classes)
    for number in range(len(page.session.files)):
        assert page.client.get(f"/image/{number}").headers["content-type"] == "image/jpeg"
        page.label(number, number % 4)
    assert page.client.get("/state").headers["content-type"] == "application/json"
    again = open_page(folder)
    assert again.state["labeled"] == len(again.session.files) == 4  # a name that begins with a dot is hidden
    assert tuple(one["name"] for one in again.state["classes"]) == classes


def test_an_unexpected_failure_is_one_sentence(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyError("secret\nof the server")

    monkeypatch.setattr(page.session, "state", fail)
    response = page.client.get("/state")
    assert response.status_code == 500
    assert not any(text in response.json()["error"] for text in ("Traceback", "\n"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    server = ServerThread(colored_images(tmp_path / "photos", 6))
    yield server
    server.stop()


def half_request(server: ServerThread) -> socket.socket:
    """A connection whose request never ends."""
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(f"GET /state HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
    return connection


def test_half_sent_requests_of_strangers_keep_nobody_out(server: ServerThread) -> None:
    held = [half_request(server) for _ in range(320)]
    assert httpx.get(server.address, follow_redirects=True).status_code == 200
    assert len(server.server.server_state.connections) <= server_module.MOST_STRANGERS + 2
    for connection in held:
        connection.close()


def test_a_request_of_a_stranger_must_end_in_time_and_streams_of_others_go_on(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SECONDS_OF_STRANGERS", 0.3)
    monkeypatch.setattr(server_module, "MOST_STRANGERS", 3)
    with httpx.Client() as client, half_request(server) as held:
        client.get(server.address)
        with client.stream("GET", f"http://127.0.0.1:{server.port}/events", timeout=5) as events:
            lines = events.iter_lines()
            assert next(lines) == "event: state"
            held.settimeout(5)
            assert held.recv(1) == b""  # closed
            others = [half_request(server) for _ in range(5)]
            time.sleep(0.5)
            server.session.add_class("teal")
            assert any("teal" in line for line in lines)
            for other in others:
                other.close()
