"""A connection between two ranks, which carries frames over a socket."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.transport._encoding import Buffer
from core_sdk._distributed.transport._frame_memory import MAX_KEPT_FRAME_BYTES, FrameMemory
from core_sdk._distributed.transport._frames import (
    CODE_BYTES,
    HEADER,
    MAX_PAYLOAD_BYTES,
    CollectiveOperation,
    ConnectionEndedError,
    Frame,
    FrameKind,
    Seal,
)

_CHUNK_BYTES = 1 << 14
# An object of this size is sent at once, where Linux allows it (net.core.wmem_max): sender and receiver then need not
# take turns. Takes no memory while nothing is on its way.
_LOCAL_SEND_BYTES = 1 << 22
# Below this size, one copy costs less than passing several buffers to the kernel.
_COPIED_BYTES = 1 << 15

_HEADER_BYTES = HEADER.size

# Linux's number of this socket option, which Python does not have yet.
_TCP_RTO_MAX_MS = 44
# Limits the pause before a lost packet is sent again, which otherwise doubles each time.
_LONGEST_PAUSE_MS = 3_000
# A script may let SIGPIPE end it. Our sockets must not cause that signal.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class Connection:
    """Sends and receives frames over a connected socket. One thread sends at a time, and one receives.

    If the script closes the socket, the connection has ended: a file that it opens under the same number refuses what
    is sent, and is not closed. A look at the descriptor before each call would cost as much as the call.
    """

    def __init__(self, sock: socket.socket, seal: Seal | None, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        sock.setblocking(False)
        self.is_local = sock.family == socket.AF_UNIX
        if self.is_local:
            with contextlib.suppress(OSError):  # macOS refuses what is more than its limit
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LOCAL_SEND_BYTES)
        else:
            _tune_tcp(sock)
        self._socket = sock
        self._status = os.fstat(sock.fileno())
        self._seal = seal
        self.is_sealed = seal is not None
        self._code_bytes = CODE_BYTES if seal else 0
        self.max_payload_bytes = max_payload_bytes
        self._data = b""
        """The bytes that were read. The first `_offset` of them have been taken."""
        self._offset = 0
        self._num_missing = 0
        """The number of bytes that are missing from the frame whose header has been taken."""
        self._large: bytearray | None = None
        """The body of a large frame, into which its bytes are read: its call site, payload and code."""
        self._num_filled = 0
        """The number of bytes that `_large` has got."""
        self.frame_memory = FrameMemory()
        self._header: tuple[int, int, int, int, int] | None = None
        self._header_bytes = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: Frame, blocked: Callable[[], None], payload: Sequence[Buffer] = ()) -> None:
        """Sends a frame, with `payload` appended to the frame's own payload. Raises `ConnectionEndedError`.

        Calls `blocked` whenever the socket is full. It waits, or raises.
        """
        if self._seal is None and not payload and len(frame.payload) <= _COPIED_BYTES:
            self.send_packed(frame.packed(), blocked)
            return
        for _ in self.sending(frame, payload):
            blocked()

    def sending(self, frame: Frame, payload: Sequence[Buffer] = ()) -> Iterator[None]:
        """Sends a frame as `send()` does. Yields whenever the socket is full."""
        body: list[Buffer] = [frame.site, frame.payload, *payload]
        num_bytes = sum(map(len, body)) - len(frame.site)
        header = HEADER.pack(frame.kind, frame.operation, len(frame.site), frame.sequence, num_bytes)
        if self._seal is not None:
            header_code, frame_code = self._seal.seal(header, body)
            body = [header_code, *body, frame_code]
        return self._sending([b"".join((header, *body))] if num_bytes <= _COPIED_BYTES else [header, *body])

    def send_packed(self, content: bytes, blocked: Callable[[], None]) -> None:
        """Sends a small frame that was packed once for all members, like `send()`. Not for connections with a seal."""
        try:
            num_sent = self._socket.send(content, _NO_SIGNAL)
        except BlockingIOError:
            num_sent = 0
        except OSError as error:
            raise ConnectionEndedError(str(error)) from error
        if num_sent < len(content):
            for _ in self._sending([content[num_sent:]]):
                blocked()

    def send_message(self, message: bytes, timeout_s: float) -> None:
        """Sends a message. Raises `ConnectionEndedError`, also if the peer reads nothing for `timeout_s`."""

        def wait() -> None:
            poller = select.poll()
            poller.register(self, select.POLLOUT)
            if not poller.poll(1000 * timeout_s):
                raise ConnectionEndedError("it does not read")

        self.send(Frame(FrameKind.MESSAGE, CollectiveOperation.NONE, 0, b"", message), wait)

    def _sending(self, buffers: Sequence[Buffer]) -> Iterator[None]:
        waiting = [memoryview(buffer) for buffer in buffers if len(buffer)]
        while waiting:
            try:
                num_sent = self._socket.sendmsg(waiting[:512], (), _NO_SIGNAL)
            except BlockingIOError:
                yield
                continue
            except OSError as error:
                raise ConnectionEndedError(str(error)) from error
            while num_sent and num_sent >= len(waiting[0]):
                num_sent -= len(waiting.pop(0))
            if num_sent:
                waiting[0] = waiting[0][num_sent:]

    def receive_nowait(self) -> Frame | None:
        """Returns the next frame, or None if it has not come completely. Raises `ConnectionEndedError`.

        Call it, or `take()`, before waiting for the socket, which a frame that was read already does not make readable.
        """
        while (frame := self.take()) is None:
            try:
                self._read()
            except BlockingIOError:
                return None
            except OSError as error:
                raise ConnectionEndedError(str(error)) from error
        return frame

    def _read(self) -> None:
        if self._large is not None or self._num_missing > _CHUNK_BYTES:
            self._read_large()
            return
        if self._offset:
            self._data = self._data[self._offset :]
            self._offset = 0
        chunk = self._socket.recv(_CHUNK_BYTES)
        if not chunk:
            raise ConnectionEndedError("the connection was closed")
        self._data += chunk

    def _read_large(self) -> None:
        """Reads no further than the current frame, into its place.

        Takes at most as much memory as has come, or a little, so that an announced size alone takes none.
        """
        if self._large is None:
            begun = self._data[self._offset :]
            size_bytes = len(begun) + self._num_missing
            self._large = self.frame_memory.take(min(size_bytes, max(MAX_KEPT_FRAME_BYTES, 2 * len(begun))))
            self._large[: len(begun)] = begun
            self._num_filled = len(begun)
            self._data, self._offset = b"", 0
        if self._num_filled == len(self._large):
            self._large += bytes(min(self._num_missing, self._num_filled))
        num_read = self._socket.recv_into(memoryview(self._large)[self._num_filled :])
        if num_read == 0:
            raise ConnectionEndedError("the connection was closed")
        self._num_filled += num_read
        self._num_missing -= num_read

    def take(self) -> Frame | None:
        """Returns the next frame, or None if it has not been read completely. Reads nothing."""
        if (header := self._header or self._take_header()) is None:
            return None
        if self._large is not None:
            return None if self._num_missing > 0 else self._take_large(header, self._large)
        kind, operation, site_bytes, sequence, payload_bytes = header
        data, begin = self._data, self._offset
        middle = begin + site_bytes
        body_end = middle + payload_bytes
        end = body_end + self._code_bytes
        self._num_missing = end - len(data)
        if self._num_missing > 0:
            return None
        if self._seal is not None:
            with memoryview(data) as view:
                self._seal.check_frame(self._header_bytes, view[begin:body_end], view[body_end:end])
        self._header = None
        self._data, self._offset = (b"", 0) if end == len(data) else (data, end)
        return Frame(kind, operation, sequence, data[begin:middle], data[middle:body_end])

    def _take_large(self, header: tuple[int, int, int, int, int], body: bytearray) -> Frame:
        kind, operation, site_bytes, sequence, payload_bytes = header
        end = site_bytes + payload_bytes
        view = memoryview(body)
        if self._seal is not None:
            self._seal.check_frame(self._header_bytes, view[:end], view[end:])
        self._header = self._large = None
        self.frame_memory.keep(body)
        return Frame(kind, operation, sequence, bytes(view[:site_bytes]), view[site_bytes:end])

    def _take_header(self) -> tuple[int, int, int, int, int] | None:
        end = self._offset + _HEADER_BYTES
        if len(self._data) < end + self._code_bytes:
            return None
        header: tuple[int, int, int, int, int] = HEADER.unpack_from(self._data, self._offset)
        if self._seal is not None:
            self._header_bytes = self._data[self._offset : end]
            self._seal.check_header(self._header_bytes, self._data[end : end + self._code_bytes])
        kind, operation, _, _, payload_bytes = header
        if not (FrameKind.HELLO <= kind <= FrameKind.MESSAGE and operation <= CollectiveOperation.BROADCAST):
            raise ConnectionEndedError("something came that is no frame")
        if payload_bytes > self.max_payload_bytes:
            raise ConnectionEndedError(f"a frame of {payload_bytes:,} bytes was announced")
        self._header = header
        self._offset = end + self._code_bytes
        return header

    def _check_ours(self) -> None:
        try:
            is_ours = os.path.samestat(self._status, os.fstat(self._socket.fileno()))
        except OSError:
            is_ours = False
        if not is_ours:
            raise ConnectionEndedError("its descriptor was closed")

    def expect_answers(self) -> None:
        """Ends the connection if the peer's host does not confirm sent data for half a minute.

        Not for connections whose peer may leave data unread for longer while it computes.
        """
        if not self.is_local and (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, option, 30_000)

    def num_bytes_on_their_way(self) -> int:
        """Returns the number of bytes that the peer's host has not confirmed yet, which closing could lose."""
        if self.is_local:
            return 0
        try:
            return int.from_bytes(fcntl.ioctl(self._socket, termios.TIOCOUTQ, b"\0" * 4), sys.byteorder)
        except OSError:
            return 1
        except ValueError:  # another thread has closed the connection
            return 0

    def end_sending(self) -> None:
        """Ends sending. The peer reads what was sent, and then the end of the stream."""
        with contextlib.suppress(OSError, ConnectionEndedError):
            self._check_ours()
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        try:
            self._check_ours()
            self._socket.close()
        except ConnectionEndedError:
            self._socket.detach()


@dataclass
class Peer:
    """Another rank, and the two connections to it."""

    identity: RankIdentity
    data: Connection
    control: Connection


def _tune_tcp(sock: socket.socket) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel before 6.15
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, _LONGEST_PAUSE_MS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A vanished host is noticed after half a minute without an answer. Many probes are sent, since a network may lose
    # some of them.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 10)):
        if (number := getattr(socket, option, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
