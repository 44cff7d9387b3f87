"""Running the server: a socket, a token, and a clean end. It needs uvicorn."""

import contextlib
import errno
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.labeling.security import Access
from rankingmatch.labeling.server import make_app
from rankingmatch.labeling.session import Session
from rankingmatch.labeling.training import Training

__all__ = ["DEFAULT_PORT", "serve"]

DEFAULT_PORT = 8765
SECONDS_TO_STOP = 2


def serve(session: Session, training: Training, host: str, port: int | None, started: Callable[[str], None]) -> None:
    """Answer requests until SIGINT or SIGTERM.

    Parameters
    ----------
    session, training
        What the requests are about.
    host, port
        Where to listen; without a port, the default one or, if it is taken, any that is free.
    started
        Called with the address to open, which contains the token, once the server listens.

    Raises
    ------
    ConfigError
        If the server cannot listen there.
    """
    listening = _listen(host, port)
    access = Access(secrets.token_urlsafe(24), listening.getsockname()[1], host)
    servers: list[uvicorn.Server] = []
    app: Any = make_app(session, training, access, lambda: bool(servers) and servers[0].should_exit)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # addresses contain the token
        lifespan="off",
        server_header=False,
        ws="none",
        limit_concurrency=200,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )
    servers.append(uvicorn.Server(config))
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    started(f"http://{shown}:{access.port}/?token={access.token}")
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: uvicorn raises signals again
    try:
        with contextlib.suppress(KeyboardInterrupt):
            servers[0].run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, previous)
        listening.close()


def _listen(host: str, port: int | None) -> socket.socket:
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
