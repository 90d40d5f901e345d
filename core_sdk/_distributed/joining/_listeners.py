"""The sockets on which a chief accepts connections while its group forms."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from pathlib import Path

from core_sdk.errors import JoinError

_MAX_UNIX_PATH_BYTES = 100


class Listeners:
    """The listening sockets of one chief; the end of the `with` block closes them."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self._open = contextlib.ExitStack()

    def listen_unix(self) -> str:
        directory = _short_private_directory()
        self._open.callback(shutil.rmtree, directory, ignore_errors=True)
        path = str(directory / "chief.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._open.callback(listener.close)
        listener.bind(path)
        self._add(listener)
        return path

    def listen_tcp(self, host: str | None, port: int) -> int:
        """Listens on all interfaces if `host` is None; returns the port."""
        try:
            listener = _tcp_listener(host, port)
        except OSError as error:
            raise JoinError(
                f"rank 0 cannot be reached at port {port} of {host or 'this host'}: {error.strerror or error}. "
                "Choose a port that is free, and an address of rank 0's node."
            ) from error
        self._open.callback(listener.close)
        self._add(listener)
        return int(listener.getsockname()[1])

    def __enter__(self) -> Listeners:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open.close()

    def _add(self, listener: socket.socket) -> None:
        listener.listen(1024)
        listener.setblocking(False)
        self.sockets.append(listener)


def _tcp_listener(host: str | None, port: int) -> socket.socket:
    if host is None and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    return socket.create_server((host or "", port), family=family)


def _short_private_directory() -> Path:
    """Makes a private directory whose path is short enough for a Unix socket.

    Such a path may have about a hundred bytes, and some temporary directories have longer ones.
    """
    for parent in (tempfile.gettempdir(), "/tmp"):
        directory = Path(tempfile.mkdtemp(prefix="core-sdk-", dir=parent))
        if len(str(directory / "chief.sock").encode()) <= _MAX_UNIX_PATH_BYTES:
            return directory
        directory.rmdir()
    raise OSError(f"no temporary directory has a path short enough for a socket: {tempfile.gettempdir()}")
