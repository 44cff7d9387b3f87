"""Limits of a process, under which hostile files are read."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def limit_addresses(more: int) -> None:
    """No more than so many bytes of addresses beyond those in use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.getrlimit(resource.RLIMIT_AS)[1]))


@contextmanager
def gigabyte() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit_addresses(2**30)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
