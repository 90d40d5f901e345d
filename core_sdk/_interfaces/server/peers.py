"""The user at the other end of a connection within this machine, as Linux knows it."""

from __future__ import annotations

import os
import socket
import struct
import sys

_SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NETLINK_SOCK_DIAG = 20, 1, 4
_HEADER = struct.Struct("=IHHII")
_ANSWER = struct.Struct("=16x x B 62x I")
"""The state and the user of the answer; an error is too short to have them."""
_ESTABLISHED = 1
_ANY_COOKIE = b"\xff" * 8


def may_be_other_user(connection: socket.socket) -> bool:
    """Returns whether another user than this one and root may have connected, or the one that has is gone already.

    Also True for a program of another machine, of which the kernel knows nothing. Other systems than Linux do not tell
    who has connected: False.
    """
    if sys.platform != "linux":
        return False
    try:
        state, user = _state_and_user(connection.family, connection.getpeername(), connection.getsockname())
    except (OSError, struct.error):
        return True
    return state != _ESTABLISHED or user not in (0, os.geteuid())


def _state_and_user(family: int, peer: tuple[str, int], own: tuple[str, int]) -> tuple[int, int]:
    """Asks the kernel for one socket by its two addresses, which costs the same however many there are."""
    ends = struct.pack("!HH16s16s", peer[1], own[1], _packed(family, peer[0]), _packed(family, own[0]))
    request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + bytes(4) + _ANY_COOKIE
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + request)
        answer = kernel.recv(4096)
    return _ANSWER.unpack_from(answer)


def _packed(family: int, address: str) -> bytes:
    return socket.inet_pton(family, address).ljust(16, b"\0")
