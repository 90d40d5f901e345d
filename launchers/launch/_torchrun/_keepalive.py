"""Keep-alive of this process's connections to other nodes.

They are torch's, to its stores. Without keep-alive, a question to a host whose cable is cut waits a quarter of an hour,
and a connection on which the answer is due waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

_SILENCE_S = 30
_IDLE_S = 10
_INTERVAL_S = 5


def enable_keepalive() -> None:
    """The connections that are open now break when the other side has not answered for half a minute."""
    for path in list(Path("/dev/fd").iterdir()):
        # Some descriptors are no sockets, and that of the listing itself is closed by now.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                _enable(connection)


def _enable(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_S * 1000)
