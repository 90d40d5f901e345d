"""The guard of the quick tests: it holds that they start no process, and open no connection to a server."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import pytest
import requests  # noqa: F401 - as it is imported, it binds a socket in order to see whether there is IPv6

_LEAVES_THE_PROCESS = frozenset(
    {
        "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system",
        "socket.bind", "socket.connect", "subprocess.Popen",
    }
)  # fmt: skip
_seen: list[str] | None = None
"""What the guarded test has done; None while none is guarded."""


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _seen is not None and event in _LEAVES_THE_PROCESS:
        _seen.append(f"{event} {arguments}")


sys.addaudithook(_watch)


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Fails the test that runs within if it starts a process or a server, or asks one."""
    global _seen
    seen: list[str] = []
    _seen = seen
    try:
        yield
    finally:
        _seen = None
    if seen:
        pytest.fail(f"a quick test stays in its process; give this one to the set `test` in tests/times.txt: {seen[0]}")
