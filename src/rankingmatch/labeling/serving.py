"""Running the server: a socket, a token, connections of strangers, and a clean end. It needs uvicorn."""

import asyncio
import contextlib
import errno
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.labeling.background import Background
from rankingmatch.labeling.processes import Training
from rankingmatch.labeling.security import Access
from rankingmatch.labeling.server import make_app
from rankingmatch.labeling.session import Session

__all__ = ["DEFAULT_PORT", "listen", "make_server", "serve"]

DEFAULT_PORT = 8765
SECONDS_TO_STOP = 2
MOST_CONNECTIONS = 300
MOST_STRANGERS = 100  # connections that have not shown the token
SECONDS_OF_STRANGERS = 10.0


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
