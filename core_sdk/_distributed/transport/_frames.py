"""The format of frames, the unit of what two ranks send each other.

A frame names the operation, its sequence number and its call site, and carries a payload:

    kind (1 byte), operation (1), length of the call site (2), sequence (8), length of the payload (8), big-endian
    [16 bytes of HMAC-SHA-256 over the header]
    call site, payload
    [16 bytes of HMAC-SHA-256 over header, call site and payload]

The codes in brackets are sent over TCP only. Each covers the number of the frame, and each direction has its own key,
so that frames cannot be altered, repeated, sent back or left out. The header's code is checked before any memory is
taken for the announced payload.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence

import msgspec

from core_sdk._distributed.transport._encoding import Buffer

MAX_PAYLOAD_BYTES = 1 << 30
HEADER = struct.Struct("!BBHQQ")
CODE_BYTES = 16


# Plain integers, since members of enumerations are slow to look up and to pack.
class FrameKind:
    HELLO = 1
    VALUE = 2
    FAILURE = 3
    MESSAGE = 4


class CollectiveOperation:
    NONE = 0
    GATHER = 1
    ALLGATHER = 2
    BROADCAST = 3
    NAMES = ("none", "gather", "allgather", "broadcast")


class Frame(msgspec.Struct, frozen=True):
    kind: int
    operation: int
    sequence: int
    site: bytes
    payload: Buffer

    def packed(self) -> bytes:
        """Returns the bytes of a small frame, for a connection without a seal."""
        header = HEADER.pack(self.kind, self.operation, len(self.site), self.sequence, len(self.payload))
        return b"".join((header, self.site, self.payload))


class ConnectionEndedError(Exception):
    """The peer has closed the connection, died, or sent something that is not a frame."""


class Seal:
    """Makes and checks the codes of a connection's frames, with one key for each direction."""

    def __init__(self, *, send_key: bytes, receive_key: bytes) -> None:
        self._sender = hmac.new(send_key, digestmod="sha256")
        self._receiver = hmac.new(receive_key, digestmod="sha256")
        self._num_sent = 0
        self._num_received = 0

    def seal(self, header: bytes, body: Sequence[Buffer]) -> tuple[bytes, bytes]:
        codes = _code(self._sender, self._num_sent, header), _code(self._sender, self._num_sent, header, *body)
        self._num_sent += 1
        return codes

    def check_header(self, header: Buffer, code: Buffer) -> None:
        _compare(_code(self._receiver, self._num_received, header), code)

    def check_frame(self, header: Buffer, body: Buffer, code: Buffer) -> None:
        _compare(_code(self._receiver, self._num_received, header, body), code)
        self._num_received += 1


def _code(key: hmac.HMAC, number: int, header: Buffer, *body: Buffer) -> bytes:
    digest = key.copy()
    digest.update(number.to_bytes(8, "big") + bytes([bool(body)]))
    digest.update(header)
    for piece in body:
        digest.update(piece)
    return digest.digest()[:CODE_BYTES]


def _compare(expected: bytes, found: Buffer) -> None:
    if not hmac.compare_digest(expected, found):
        raise ConnectionEndedError("a frame came without the right code: something between the nodes has altered it")
