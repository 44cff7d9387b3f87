"""A connection to a Ray cluster, or a cluster on this machine alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
    try:
        yield ray
    finally:
        ray.shutdown()
