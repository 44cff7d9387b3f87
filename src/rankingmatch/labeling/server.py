"""The HTTP server of a labeling session: requests in, JSON and images out. It needs Starlette and uvicorn."""

import asyncio
import contextlib
import errno
import io
import json
import secrets
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from rankingmatch.core.errors import ConfigError, RankingMatchError, first_line, setting
from rankingmatch.core.names import printable
from rankingmatch.data.decode import UnreadableError, view_image
from rankingmatch.labeling.background import Background
from rankingmatch.labeling.folder import export_folders
from rankingmatch.labeling.journal import JournalError
from rankingmatch.labeling.processes import Training
from rankingmatch.labeling.security import REPORT_POLICY, Access, Guard
from rankingmatch.labeling.session import RequestError, Session

MOST_IMAGES = 200  # that a client gets at once
LONGEST_CLIENT = 200  # of the name of a client
SECONDS_BETWEEN_EVENTS = 0.25
HEARTBEAT = 60  # intervals without a change after which a comment is sent, so that a lost connection is noticed
PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
SIDES = {"large": 1600, "thumbnail": 256}  # the longest side of an image in pixels
QUALITY = 88
DEFAULT_PORT = 8765
SECONDS_TO_STOP = 2
MOST_CONNECTIONS = 300
MOST_STRANGERS = 100  # connections that have not shown the token
SECONDS_OF_STRANGERS = 10.0
_decoding = threading.BoundedSemaphore(2)  # the largest image that is accepted takes half a gigabyte
Answer = dict[str, Any]

# --- the application -----------------------------------------------------------------------------------------


def make_app(
    session: Session,
    training: Training,
    access: Access,
    is_stopping: Callable[[], bool] = lambda: False,
    recognize: Callable[[Any], object] = lambda client: None,
) -> Guard:
    """Make the application.

    `is_stopping` says whether the server is about to stop, which ends open streams of events; `recognize` is told the
    client of every request that knows the token.
    """

    async def stream(request: Request) -> AsyncIterator[str]:
        """The state, now and whenever it has changed."""
        sent, quiet = -1, 0
        while not (is_stopping() or await request.is_disconnected()):
            if session.version != sent:
                state = await asyncio.to_thread(session.state)
                sent, quiet = state["version"], 0
                yield f"event: state\ndata: {json.dumps(state)}\n\n"
            elif (quiet := quiet + 1) % HEARTBEAT == 0:
                yield ": still here\n\n"
            await asyncio.sleep(SECONDS_BETWEEN_EVENTS)

    def report(request: Request) -> Response:
        path = training.report_of(request.path_params["run"])
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    routes = [
        Route("/", lambda request: _page_file("label.html")),
        Route("/page/{name}", lambda request: _page_file(request.path_params["name"])),
        Route("/image/{number}", lambda request: _image(session, request)),
        Route("/report/{run}", report),
        Route("/events", lambda request: StreamingResponse(stream(request), media_type="text/event-stream")),
        *(Route(path, _asked(action)) for path, action in _reading(session).items()),
        *(Route(path, _posted(session, act), methods=["POST"]) for path, act in _writing(session, training).items()),
    ]
    handlers: dict[Any, Any] = dict.fromkeys((RankingMatchError, HTTPException, Exception), _refused)
    return Guard(Starlette(routes=routes, exception_handlers=handlers), access, recognize)


def _page_file(name: str) -> Response:
    """A file of the page; only names that are there are ever looked at."""
    files = {entry.name: entry for entry in (resources.files(__package__) / "page").iterdir()}
    suffix = Path(name).suffix
    if name not in files or suffix not in PAGE_TYPES:
        raise HTTPException(404, "There is no such file.")
    return Response(files[name].read_bytes(), media_type=PAGE_TYPES[suffix])


def _image(session: Session, request: Request) -> Response:
    """An image in sRGB as a JPEG file."""
    number, size = _integer(request.path_params["number"], "number"), request.query_params.get("size", "large")
    if size not in SIDES:
        raise RequestError(f"size must be {' or '.join(SIDES)}")
    content = io.BytesIO()
    try:
        with _decoding:
            view_image(session.path(number), SIDES[size]).save(content, "JPEG", quality=QUALITY)
    except (UnreadableError, OSError) as error:
        reason = str(error) if isinstance(error, UnreadableError) else f"cannot be read ({error.strerror})"
        session.mark_unreadable(number)
        raise HTTPException(404, f"The image {printable(session.files[number])} {reason}.") from error
    # The cookie is new whenever the server is started: numbers may then mean other images.
    headers = {"cache-control": "private, max-age=3600", "vary": "Cookie"}
    return Response(content.getvalue(), media_type="image/jpeg", headers=headers)


def _reading(session: Session) -> dict[str, Callable[[QueryParams], Answer]]:
    def next_images(query: QueryParams) -> Answer:
        client, count = _client(query.get("client")), _integer(query.get("count", "8"), "count")
        after = {_integer(value, "after") for value in query.getlist("after")}
        return {"images": session.next(client, max(1, min(count, MOST_IMAGES)), after)}

    def grid(query: QueryParams) -> Answer:
        class_id, page = _integer(query.get("class"), "class"), _integer(query.get("page", "0"), "page")
        return session.grid(class_id, sure=query.get("order") != "unsure", page=max(0, page))

    return {
        "/state": lambda query: session.state(),
        "/next": next_images,
        "/grid": grid,
        "/mistakes": lambda query: session.mistakes(max(0, _integer(query.get("page", "0"), "page"))),
        "/history": lambda query: {"image": session.labeled_before(_integer(query.get("at", "-1"), "at"))},
    }


def _asked(action: Callable[[QueryParams], Answer]) -> Callable[[Request], Response]:
    return lambda request: JSONResponse(action(request.query_params))


def _writing(session: Session, training: Training) -> dict[str, Callable[[Answer], Answer | None]]:
    def undo(body: Answer) -> Answer:
        number = session.undo(_client(body.get("client")))
        return {"number": number, "image": None if number is None else session.image(number)}

    def classes(body: Answer) -> None:
        if "add" in body:
            session.add_class(body["add"])
        elif "rename" in body:
            session.rename_class(body["rename"], body.get("name"))
        else:
            session.merge_classes(body.get("merge"), body.get("into"))

    return {
        "/label": lambda body: session.label(body.get("number"), body.get("class"), kept=body.get("origin") == "kept"),
        "/undo": undo,
        "/classes": classes,
        "/accept": lambda body: session.accept(body.get("class"), body.get("numbers")),
        "/train": lambda body: training.start(),
        "/train/stop": lambda body: training.stop(),
        "/export": lambda body: {"path": printable(str(export_folders(session)))},
    }


def _posted(session: Session, action: Callable[[Answer], Answer | None]) -> Callable[[Request], Any]:
    """An endpoint that reads a JSON object, acts in a thread, and answers with the new state."""

    async def endpoint(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError):
            body = None
        except ClientDisconnect as error:
            raise HTTPException(413, "The request is too large.") from error
        if not isinstance(body, dict):
            raise HTTPException(400, "A request must be a JSON object.")
        if body.get("scan", session.scan) != session.scan:
            raise HTTPException(409, "The images in the folder have changed since this page was loaded: reload it.")
        answer = await asyncio.to_thread(action, body)
        return JSONResponse({"state": await asyncio.to_thread(session.state), **(answer or {})})

    return endpoint


def _integer(value: str | None, name: str) -> int:
    if value is None or len(value) > 12 or not value.removeprefix("-").isdecimal():
        raise RequestError(f"{name} must be a whole number")
    return int(value)


def _client(value: object) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_CLIENT:
        raise RequestError(f"client must be text of at most {LONGEST_CLIENT} characters")
    return value


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    if not isinstance(error, RankingMatchError):
        return JSONResponse({"error": f"The server failed ({type(error).__name__}: {first_line(error)})."}, 500)
    text = str(error)
    # A message as a sentence: with a capital letter and a full stop, where that changes no path.
    start = text[:1].upper() if text[:2].isalpha() else text[:1]
    sentence = start + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
    return JSONResponse({"error": sentence}, 507 if isinstance(error, JournalError) else 400)


# --- running it ----------------------------------------------------------------------------------------------


def serve(session: Session, host: str, port: int | None, method: str, started: Callable[[str], object]) -> bool:
    """Answer requests, train and compute until SIGINT or SIGTERM; returns whether a training was stopped.

    Without a port, it listens on the default one or, if it is taken, on any that is free. `started` is then called with
    the address to open, which contains the token. Raises ConfigError if the server cannot listen there.
    """
    listening = listen(host, port)
    training, background = Training(session), Background(session, method)
    access = Access(secrets.token_urlsafe(24), listening.getsockname()[1], host)
    server = make_server(session, training, access)
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    started(f"http://{shown}:{access.port}/?token={access.token}")
    background.start()
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: uvicorn raises signals again
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, previous)
        listening.close()
        was_training = training.running
        training.close()
        background.stop()
        session.journal.close()
    return was_training


def make_server(session: Session, training: Training, access: Access) -> uvicorn.Server:
    """The server of a session.

    A connection that has not shown the token is closed after a while, the oldest at once if there are too many: nobody
    without the token can hold all connections.
    """
    strangers: dict[Any, H11Protocol] = {}

    class Protocol(H11Protocol):
        """A connection, by the address of the client in `strangers` until a request has the token."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            strangers[self.client] = self
            self.loop.call_later(SECONDS_OF_STRANGERS, self.close_stranger)
            if len(strangers) > MOST_STRANGERS:
                strangers.pop(next(iter(strangers))).transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self.close_stranger()
            super().connection_lost(exc)

        def close_stranger(self) -> None:
            """Close the connection, unless the client is known."""
            if strangers.get(self.client) is self:
                del strangers[self.client]
                self.transport.abort()

    app: Any = make_app(
        session, training, access, lambda: server.should_exit, lambda client: strangers.pop(client, None)
    )
    config = uvicorn.Config(
        app,
        http=Protocol,
        log_level="warning",
        access_log=False,  # addresses contain the token
        lifespan="off",
        server_header=False,
        proxy_headers=False,  # the client is the one of the connection, whatever a header says
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )
    server = uvicorn.Server(config)
    return server


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens; raise ConfigError if that is impossible."""
    if not host.strip():
        raise ConfigError(f"{setting('host')} is empty; name an address, or leave the option out to use 127.0.0.1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for attempt in [DEFAULT_PORT, 0] if port is None else [port]:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, attempt))
            listening.listen(128)
            return listening
        except OSError as error:
            listening.close()
            problem = error
    if problem.errno == errno.EADDRINUSE:
        raise ConfigError(f"{setting('port')} {port} is in use by another program; choose another one")
    reason = problem.strerror or str(problem)
    raise ConfigError(f"{setting('host')} {host}: the server cannot listen on port {port} ({reason})")
