"""One connection between two ranks that know each other: frames in order, whole, and bounded.

A frame names the operation, its sequence number and its call site, and carries a payload:

    kind (1 byte), operation (1), length of the call site (2), sequence (8), length of the payload (8), big-endian
    [16 bytes of HMAC-SHA-256 over the header]
    call site, payload
    [16 bytes of HMAC-SHA-256 over header, call site and payload]

The codes in brackets are there on TCP only. Each covers the direction (a key of its own) and the number of the frame in
it, so that frames can be neither altered, nor repeated, nor turned back, nor left out; the first one comes before any
memory is taken for what it announces.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import hmac
import socket
import struct
import termios
from collections.abc import Callable, Sequence
from typing import NamedTuple

from core_sdk.distributed._encoding import Buffer

MAX_PAYLOAD_BYTES = 1 << 30

_HEADER = struct.Struct("!BBHQQ")
_CODE_BYTES = 16
_CHUNK_BYTES = 1 << 16
_FIRST_BYTES = 1 << 22
# Below, one copy is cheaper than the kernel's walk over several buffers.
_COPIED_BYTES = 1 << 15


# A script that lets a closed pipe kill it does not mean ours.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class Kind(enum.IntEnum):
    HELLO = 1
    VALUE = 2
    FAILURE = 3
    MESSAGE = 4


class Operation(enum.IntEnum):
    NONE = 0
    GATHER = 1
    ALLGATHER = 2
    BROADCAST = 3


class Frame(NamedTuple):
    kind: int
    operation: int
    sequence: int
    site: bytes
    payload: Buffer


class LinkEndedError(Exception):
    """The peer has closed, died, or sent what no peer sends."""


class Seal:
    """The codes of a link's frames, one key for each direction."""

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
    return digest.digest()[:_CODE_BYTES]


def _compare(expected: bytes, found: Buffer) -> None:
    if not hmac.compare_digest(expected, found):
        raise LinkEndedError("a frame came without the right code: something between the nodes has altered it")


class Link:
    """Frames over a connected socket. One thread sends at a time, and one receives."""

    def __init__(
        self, connection: socket.socket, seal: Seal | None, max_payload_bytes: int = MAX_PAYLOAD_BYTES
    ) -> None:
        connection.setblocking(False)
        self.is_local = connection.family == socket.AF_UNIX
        if not self.is_local:
            _tune_tcp(connection)
        self._socket = connection
        self._seal = seal
        self._code_bytes = _CODE_BYTES if seal else 0
        self.max_payload_bytes = max_payload_bytes
        self._data = b""
        self._offset = 0
        self._header: tuple[int, int, int, int, int] | None = None
        self._header_bytes: Buffer = b""
        self._body: bytearray | None = None
        self._body_bytes = 0
        self._num_filled = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: Frame, blocked: Callable[[], None], payload: Sequence[Buffer] = ()) -> None:
        """Calls `blocked` whenever the peer takes no more; it waits, or raises. `payload` goes on from the frame's own.

        Raises `LinkEndedError`.
        """
        body = [frame.site, frame.payload, *payload]
        num_bytes = sum(map(len, body)) - len(frame.site)
        header = _HEADER.pack(frame.kind, frame.operation, len(frame.site), frame.sequence, num_bytes)
        if self._seal is not None:
            header_code, frame_code = self._seal.seal(header, body)
            body = [header_code, *body, frame_code]
        if num_bytes <= _COPIED_BYTES:
            self._send_all([b"".join((header, *body))], blocked)
        else:
            self._send_all([header, *body], blocked)

    def _send_all(self, buffers: Sequence[Buffer], blocked: Callable[[], None]) -> None:
        waiting = [memoryview(buffer) for buffer in buffers if len(buffer)]
        while waiting:
            try:
                num_sent = self._socket.sendmsg(waiting[:512], (), _NO_SIGNAL)
            except BlockingIOError:
                blocked()
                continue
            except OSError as error:
                raise LinkEndedError(str(error)) from error
            while num_sent and num_sent >= len(waiting[0]):
                num_sent -= len(waiting.pop(0))
            if num_sent:
                waiting[0] = waiting[0][num_sent:]

    def receive_nowait(self) -> Frame | None:
        """The next frame; None if it has not come yet, or not all of it. Raises `LinkEndedError`."""
        while True:
            if (frame := self._take()) is not None:
                return frame
            try:
                self._read()
            except BlockingIOError:
                return None
            except OSError as error:
                raise LinkEndedError(str(error)) from error

    def _read(self) -> None:
        if self._body is None:
            chunk = self._socket.recv(_CHUNK_BYTES)
            num_read = len(chunk)
            self._data = self._data[self._offset :] + chunk
            self._offset = 0
        else:
            if self._num_filled == len(self._body):
                self._body.extend(bytes(min(len(self._body), self._body_bytes - len(self._body))))
            num_read = self._socket.recv_into(memoryview(self._body)[self._num_filled :])
            self._num_filled += num_read
        if num_read == 0:
            raise LinkEndedError("the connection was closed")

    def _take(self) -> Frame | None:
        """A frame from what was read."""
        header = self._header or self._take_header()
        if header is None:
            return None
        kind, operation, site_bytes, sequence, payload_bytes = header
        num_bytes = site_bytes + payload_bytes + self._code_bytes
        body = self._take_body(num_bytes)
        if body is None:
            return None
        if self._seal is not None:
            end = num_bytes - self._code_bytes
            self._seal.check_frame(self._header_bytes, memoryview(body)[:end], memoryview(body)[end:])
        self._header = None
        payload = memoryview(body)[site_bytes : site_bytes + payload_bytes]
        return Frame(kind, operation, sequence, bytes(body[:site_bytes]), payload)

    def _take_header(self) -> tuple[int, int, int, int, int] | None:
        start = self._offset
        end = start + _HEADER.size
        if len(self._data) < end + self._code_bytes:
            return None
        header_bytes = self._data[start:end]
        if self._seal is not None:
            self._seal.check_header(header_bytes, self._data[end : end + self._code_bytes])
        header = _HEADER.unpack(header_bytes)
        if not (Kind.HELLO <= header[0] <= Kind.MESSAGE and header[1] <= Operation.BROADCAST):
            raise LinkEndedError("something came that is no frame")
        if header[4] > self.max_payload_bytes:
            raise LinkEndedError(f"a frame of {header[4]:,} bytes was announced")
        self._header, self._header_bytes = header, header_bytes
        self._offset = end + self._code_bytes
        return header

    def _take_body(self, num_bytes: int) -> Buffer | None:
        if self._body is not None:
            if self._num_filled < num_bytes:
                return None
            body, self._body = self._body, None
            return body
        end = self._offset + num_bytes
        if len(self._data) >= end:
            start, self._offset = self._offset, end
            return self._data[start:end]
        if num_bytes > _CHUNK_BYTES:
            # No more than about twice what has come, whatever was announced.
            self._body = bytearray(min(num_bytes, _FIRST_BYTES))
            self._body_bytes = num_bytes
            self._num_filled = len(self._data) - self._offset
            self._body[: self._num_filled] = memoryview(self._data)[self._offset :]
            self._data, self._offset = b"", 0
        return None

    def expect_answers(self) -> None:
        """Gives a peer up whose host does not confirm for half a minute what was sent.

        Not where sending may wait for as long as the peer computes: it would be given up, too.
        """
        if not self.is_local and (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, option, 30_000)

    def has_arrived(self) -> bool:
        """Whether all that was sent is with the peer's host, so that closing cannot lose it."""
        if self.is_local:
            return True
        try:
            num_bytes = fcntl.ioctl(self._socket, termios.TIOCOUTQ, b"\0" * 4)
        except OSError:
            return False
        return not any(num_bytes)

    def end_sending(self) -> None:
        """The peer reads to the end of what was sent, then sees that there is no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


def _tune_tcp(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A host that vanishes says nothing: it is given up after half a minute without an answer.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if (number := getattr(socket, option, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, number, value)
