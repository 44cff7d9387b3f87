"""A connection to a Ray cluster, or a cluster on this machine alone."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from rankingmatch.core.errors import ConfigError, first_line, setting

__all__ = ["import_ray", "ray_connection"]

STORE = 100 * 2**20  # bytes: only settings and results pass through it


def import_ray(option: str = "on") -> Any:
    """Ray; ConfigError, which names the option that needs it, if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"{setting(option)} ray needs Ray; install it: pip install 'rankingmatch[ray]'") from error
    return ray


@contextmanager
def ray_connection(address: str | None) -> Iterator[Any]:
    """Connect to the cluster at an address, or start one on this machine; an existing connection is reused."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    local = {"num_cpus": os.cpu_count(), "include_dashboard": False, "object_store_memory": STORE}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **({} if address else local))
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ConfigError(f"{setting('ray_address')} {address}: there is no cluster ({first_line(error)})") from error
    with redirect_stdout(WithoutRay(sys.stdout)):
        try:
            yield ray
        finally:
            ray.shutdown()  # which prints what it still has to say


class WithoutRay:
    """Standard output, without what Ray's threads print there about lost workers, which goes to standard error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text where it belongs."""
        from_ray = threading.current_thread().name.startswith("ray_")
        return (sys.stderr if from_ray else self._stream).write(text)
