"""The HTTP server of a labeling session: requests in, JSON and pictures out. It needs Starlette."""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from rankingmatch.core.errors import RankingMatchError, first_line
from rankingmatch.data import printable
from rankingmatch.data.decode import UnreadableError
from rankingmatch.labeling.exporting import export_folders
from rankingmatch.labeling.journal import JournalError
from rankingmatch.labeling.pictures import SIDES, jpeg
from rankingmatch.labeling.security import REPORT_POLICY, Access, Guard
from rankingmatch.labeling.session import RequestError, Session
from rankingmatch.labeling.training import Training

__all__ = ["make_app"]

MOST_PICTURES = 200  # that a client gets at once
SECONDS_BETWEEN_EVENTS = 0.25
HEARTBEAT = 60  # intervals without a change after which a comment is sent, so that a lost connection is noticed
PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def make_app(
    session: Session, training: Training, access: Access, is_stopping: Callable[[], bool] = lambda: False
) -> Guard:
    """Make the application.

    Parameters
    ----------
    session, training
        What the requests are about.
    access
        What a request must know.
    is_stopping
        Whether the server is about to stop, which ends open streams of events.

    Returns
    -------
    Guard
        An ASGI application.
    """
    routes = [*_pages(session, training, access), *_reading(session, is_stopping), *_writing(session, training)]
    handlers: dict[Any, Any] = {RankingMatchError: _refused, HTTPException: _refused, Exception: _failed}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), access)


# --- pages -------------------------------------------------------------------------------------------------------


def _pages(session: Session, training: Training, access: Access) -> list[Route]:
    def start(request: Request) -> Response:
        given = request.query_params.get("token")
        if given is None:
            return _page_file("label.html")
        if not access.has_token(given):
            raise HTTPException(403, "The token is wrong: open the address that the server has printed.")
        response = RedirectResponse("/", 303)
        response.set_cookie(access.cookie, access.token, httponly=True, samesite="strict")
        return response

    def page(request: Request) -> Response:
        return _page_file(request.path_params["name"])

    def report(request: Request) -> Response:
        path = training.report_of(request.path_params["run"])
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    def picture(request: Request) -> Response:
        number, size = request.path_params["number"], request.query_params.get("size", "large")
        if size not in SIDES:
            raise HTTPException(400, f"The size must be {' or '.join(SIDES)}.")
        return _picture(session, number, size, request.headers.get("if-none-match", ""))

    return [
        Route("/", start),
        Route("/page/{name}", page),
        Route("/report/{run}", report),
        Route("/picture/{number:int}", picture),
    ]


def _page_file(name: str) -> Response:
    """A file of the page; only names that are there are ever looked at."""
    files = {entry.name: entry for entry in (resources.files(__package__) / "page").iterdir()}
    suffix = Path(name).suffix
    if name not in files or suffix not in PAGE_TYPES:
        raise HTTPException(404, "There is no such file.")
    return Response(files[name].read_bytes(), media_type=PAGE_TYPES[suffix])


def _picture(session: Session, number: int, size: str, known_tag: str) -> Response:
    path = session.path(number)
    try:
        status = os.stat(path)  # noqa: PTH116
        tag = hashlib.sha256(
            f"{path} {status.st_size} {status.st_mtime_ns} {size}".encode(errors="replace")
        ).hexdigest()
        # The cookie is new whenever the server is started: numbers may then mean other pictures.
        headers = {"cache-control": "private, max-age=3600", "vary": "Cookie", "etag": f'"{tag[:32]}"'}
        if known_tag == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(jpeg(path, size), media_type="image/jpeg", headers=headers)
    except (UnreadableError, OSError) as error:
        reason = str(error) if isinstance(error, UnreadableError) else f"cannot be read ({error.strerror})"
        session.mark_unreadable(number, reason)
        raise HTTPException(404, f"The picture {printable(session.files[number])} {reason}.") from error


# --- reading -----------------------------------------------------------------------------------------------------


def _reading(session: Session, is_stopping: Callable[[], bool]) -> list[Route]:
    def state(request: Request) -> Response:
        return JSONResponse(session.state())

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(session, request, is_stopping), media_type="text/event-stream")

    def next_pictures(request: Request) -> Response:
        client, count = _client(request.query_params.get("client")), _integer(request, "count", 8)
        after = {_as_integer(value, "after") for value in request.query_params.getlist("after")}
        return JSONResponse({"pictures": session.next(client, max(1, min(count, MOST_PICTURES)), after)})

    def grid(request: Request) -> Response:
        sure = request.query_params.get("order", "sure") != "unsure"
        class_id, page = _integer(request, "class"), max(0, _integer(request, "page", 0))
        pictures, pages = session.grid(class_id, sure=sure, page=page)
        return JSONResponse({"pictures": pictures, "pages": pages})

    def mistakes(request: Request) -> Response:
        pictures, pages = session.mistakes(max(0, _integer(request, "page", 0)))
        return JSONResponse({"pictures": pictures, "pages": pages})

    def history(request: Request) -> Response:
        step = 1 if _integer(request, "step", -1) > 0 else -1
        return JSONResponse({"picture": session.neighbor(_integer(request, "at", -1), step)})

    return [
        Route("/state", state),
        Route("/events", events),
        Route("/next", next_pictures),
        Route("/grid", grid),
        Route("/mistakes", mistakes),
        Route("/history", history),
    ]


async def _events(session: Session, request: Request, is_stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """The state, now and whenever it has changed."""
    sent, quiet = -1, 0
    while not is_stopping():
        if session.version != sent:
            state = await asyncio.to_thread(session.state)
            sent, quiet = state["version"], 0
            yield f"event: state\ndata: {json.dumps(state)}\n\n"
        elif (quiet := quiet + 1) % HEARTBEAT == 0:
            yield ": still here\n\n"
        await asyncio.sleep(SECONDS_BETWEEN_EVENTS)
        if await request.is_disconnected():
            return


# --- writing -----------------------------------------------------------------------------------------------------


def _writing(session: Session, training: Training) -> list[Route]:
    def label(body: dict[str, Any]) -> dict[str, Any]:
        choice = body.get("class")
        if choice is not None and choice != "none":
            choice = _as_integer(choice, "class")
        session.label(_as_integer(body.get("number"), "number"), choice, kept=body.get("origin") == "kept")
        return {}

    def undo(body: dict[str, Any]) -> dict[str, Any]:
        number = session.undo(_client(body.get("client")))
        return {"number": number, "picture": None if number is None else session.picture(number)}

    def classes(body: dict[str, Any]) -> dict[str, Any]:
        if "add" in body:
            session.add_class(_text(body["add"], "add"))
        elif "rename" in body:
            session.rename_class(_as_integer(body["rename"], "rename"), _text(body.get("name"), "name"))
        elif "merge" in body:
            session.merge_classes(_as_integer(body["merge"], "merge"), _as_integer(body.get("into"), "into"))
        else:
            raise RequestError("a request about classes must have add, rename or merge")
        return {}

    def accept(body: dict[str, Any]) -> dict[str, Any]:
        numbers = body.get("numbers")
        if not isinstance(numbers, list):
            raise RequestError("numbers must be a list")
        session.accept(_as_integer(body.get("class"), "class"), [_as_integer(one, "numbers") for one in numbers])
        return {}

    def train(body: dict[str, Any]) -> dict[str, Any]:
        training.start()
        return {}

    def stop(body: dict[str, Any]) -> dict[str, Any]:
        training.stop()
        return {}

    def export(body: dict[str, Any]) -> dict[str, Any]:
        if body.get("kind") != "folders":
            raise RequestError("kind must be folders")
        return {"path": printable(str(export_folders(session)))}

    actions = {"/label": label, "/undo": undo, "/classes": classes, "/accept": accept}
    actions |= {"/train": train, "/train/stop": stop, "/export": export}
    return [Route(path, _posted(session, action), methods=["POST"]) for path, action in actions.items()]


def _posted(session: Session, action: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Request], Any]:
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
            raise HTTPException(409, "The pictures in the folder have changed since this page was loaded: reload it.")
        answer = await asyncio.to_thread(action, body)
        return JSONResponse({"state": await asyncio.to_thread(session.state), **answer})

    return endpoint


# --- values and errors -------------------------------------------------------------------------------------------


def _integer(request: Request, name: str, default: int | None = None) -> int:
    return _as_integer(request.query_params.get(name, default), name)


def _as_integer(value: Any, name: str) -> int:
    if isinstance(value, str) and len(value) <= 12 and value.removeprefix("-").isdecimal():
        value = int(value)
    if type(value) is not int:
        raise RequestError(f"{name} must be a whole number")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{name} must be text")
    return value


def _client(value: Any) -> str:
    text = _text(value, "client")
    if not 1 <= len(text) <= 64:
        raise RequestError("client must have 1 to 64 characters")
    return text


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    status = 507 if isinstance(error, JournalError) else 400
    return JSONResponse({"error": _sentence(str(error))}, status)


def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"The server failed ({type(error).__name__}: {first_line(error)})."}, 500)


def _sentence(text: str) -> str:
    """A message as a sentence: with a capital letter and a full stop, where that changes no path."""
    start = text[:1].upper() if text[:2].isalpha() else text[:1]
    return start + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
