"""Ports for servers that take a number, and cannot be asked which one the system has chosen."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Yields a port that the system gives to nobody else during the block. Nothing listens there yet.

    It is bound, but not listened to: a server that allows addresses to be reused, as all do, can bind to it by number.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Yields several reserved ports."""
    with contextlib.ExitStack() as reserved:
        yield [reserved.enter_context(reserved_port()) for _ in range(count)]
