"""A descriptor that rides on the bytes of a Unix socket: it arrives with the first of them, or not at all."""

from __future__ import annotations

import array
import errno
import os
import socket
from collections.abc import Sequence

_INT_BYTES = array.array("i").itemsize
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


def send_with_descriptor(sock: socket.socket, content: bytes, descriptor: int) -> int:
    """How many of the bytes were sent. Raises `OSError`, and then nothing was sent."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    return sock.sendmsg([content], rights, _NO_SIGNAL)


def receive_with_descriptor(sock: socket.socket, num_bytes: int) -> tuple[bytes, int | None]:
    """At most so many bytes, and the descriptor that came with them.

    The kernel ends what it gives at the end of the send that brought a descriptor: no two sends' come together.
    Raises `OSError`, with EMFILE if this process has no room for it, and `ValueError` if there were several.
    """
    space = socket.CMSG_SPACE(_INT_BYTES)
    content, ancillary, flags, _ = sock.recvmsg(num_bytes, space, socket.MSG_CMSG_CLOEXEC)
    if not ancillary and not flags & socket.MSG_CTRUNC:
        return content, None
    descriptors = _descriptors(ancillary)
    if len(descriptors) == 1 and not flags & socket.MSG_CTRUNC:
        return content, descriptors[0]
    for descriptor in descriptors:
        os.close(descriptor)
    if not descriptors:
        raise OSError(errno.EMFILE, "a memory file of another rank cannot be opened: " + os.strerror(errno.EMFILE))
    raise ValueError("several descriptors came at once")


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(content[: len(content) // _INT_BYTES * _INT_BYTES])
    return list(found)
