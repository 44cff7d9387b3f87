"""Who may use the server: whoever has the token, from a page of this server."""

import hmac
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1 << 20  # of a request
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report has inline scripts. In a sandbox it has an origin of its own, so that they cannot use the server.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
FORBIDDEN = (
    "<!doctype html><meta charset=utf-8><title>Not allowed</title><p>Open the address that the labeling server has "
    "printed, which contains a token.</p><p>If you have just opened it from another page: "
    '<a href="/">continue to the images</a>.</p>'
)


@dataclass(frozen=True)
class Access:
    """What a request must know: the secret of this server, and where it listens."""

    token: str
    port: int
    host: str = "127.0.0.1"

    @property
    def cookie(self) -> str:
        """The name of the cookie. Cookies are shared by all ports of a host, so it has the port."""
        return f"rankingmatch-{self.port}"

    def is_own_host(self, header: str) -> bool:
        """Whether a Host header names this server. A page on the internet can make its own name point here."""
        name, _, port = header.rpartition(":")
        only_this_computer = self.host in ("127.0.0.1", "::1", "localhost")
        if port != str(self.port):
            return False
        try:
            address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            names = {"localhost"} if only_this_computer else {"localhost", self.host, socket.gethostname()}
            return name.lower() in {known.lower() for known in names}
        return address.is_loopback or not only_this_computer


class Guard:
    """An application that only sees requests which know the token and come from a page of this server.

    The address with the token gives a cookie. `recognize` is told the client of every request that knows the token.
    """

    def __init__(self, app: ASGIApp, access: Access, recognize: Callable[[Any], object]) -> None:
        self.app, self.access, self.recognize = app, access, recognize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        received = 0

        async def limited() -> Message:
            """End a request whose body is longer than it may be."""
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return {"type": "http.disconnect"} if received > MOST_BYTES else message

        async def with_headers(message: Message) -> None:
            """Add the headers that an answer does not have yet."""
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] == "http":
            await (self._answer(Request(scope)) or self.app)(scope, limited, with_headers)

    def _answer(self, request: Request) -> Response | None:
        """What a request gets that is not passed on: a refusal, or the cookie."""
        path, headers, post = request.scope["path"], request.headers, request.method == "POST"
        if not self.access.is_own_host(headers.get("host", "")):
            return _refusal(path, 403, "This server is not known by that name: open the address that it has printed.")
        if request.method not in ("GET", "HEAD", "POST"):
            return _refusal(path, 405, "Only GET and POST are allowed.")
        given = request.query_params.get("token") if path == "/" and not post else None
        token = request.cookies.get(self.access.cookie, "") if given is None else given
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.access.token.encode()):  # in constant time
            return _refusal(path, 403, "Open the address that the server has printed; it contains a token.")
        self.recognize(request.scope.get("client"))
        if given is not None:
            response = RedirectResponse("/", 303)
            response.set_cookie(self.access.cookie, self.access.token, httponly=True, samesite="strict")
            return response
        if not post:
            return None
        if headers.get("origin") != f"http://{headers['host']}":
            return _refusal(path, 403, "Requests from other pages are not allowed.")
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refusal(path, 415, "A request must be JSON.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > MOST_BYTES:
            return _refusal(path, 413, "The request is too large.")
        return None


def _refusal(path: str, status: int, sentence: str) -> Response:
    html = path == "/" and status == 403
    return HTMLResponse(FORBIDDEN, status) if html else JSONResponse({"error": sentence}, status)
