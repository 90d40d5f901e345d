"""HTTP/1.1 as it stands on the wire: heads, and bodies that are passed on without being held."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

_BUFFER_BYTES = 256 << 10
_NO_BODY = (204, 304)

Framing = int | Literal["chunked", "until close"]
"""How long a body is."""


class ConnectionEndedError(Exception):
    """The other side has closed the connection."""


class Wire:
    """One connection, read through a buffer."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._buffer = bytearray(_BUFFER_BYTES)
        self._pending = b""

    @classmethod
    def connect(cls, address: tuple[str, int]) -> Self:
        return cls(socket.create_connection(address))

    def read_head(self) -> Head:
        return Head.parse(self._read_until(b"\r\n\r\n"))

    def body(self, framing: Framing) -> Iterator[memoryview | bytes]:
        """Yields the bytes of a body as they arrive, chunk sizes included; each piece is valid until the next."""
        if framing == "until close":
            return self._pieces(None)
        return self._chunks() if framing == "chunked" else self._pieces(framing)

    def send(self, content: memoryview | bytes) -> None:
        self._socket.sendall(content)

    def is_idle(self) -> bool:
        """Returns whether the connection is open and no unexpected bytes have arrived."""
        return not self._pending and not select.select([self._socket], [], [], 0)[0]

    def shutdown(self) -> None:
        """Shuts the connection down, which ends the waiting of any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Closes the connection with a reset, as if it broke."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _read_until(self, end: bytes) -> bytes:
        read = self._pending
        while (index := read.find(end)) < 0:
            received = self._socket.recv(_BUFFER_BYTES)
            if not received:
                raise ConnectionEndedError
            read += received
        self._pending = read[index + len(end) :]
        return read[: index + len(end)]

    def _pieces(self, size: int | None) -> Iterator[memoryview | bytes]:
        while size is None or size > 0:
            piece = self._piece(size)
            if not piece:
                if size is None:
                    return
                raise ConnectionEndedError
            if size is not None:
                size -= len(piece)
            yield piece

    def _piece(self, size: int | None) -> memoryview | bytes:
        if self._pending:
            piece = self._pending[:size]
            self._pending = self._pending[len(piece) :]
            return piece
        wanted = _BUFFER_BYTES if size is None else min(size, _BUFFER_BYTES)
        return memoryview(self._buffer)[: self._socket.recv_into(self._buffer, wanted)]

    def _chunks(self) -> Iterator[memoryview | bytes]:
        while size := int((line := self._read_until(b"\r\n")).partition(b";")[0], 16):
            yield line
            yield from self._pieces(size + len(b"\r\n"))
        yield line
        while (trailer := self._read_until(b"\r\n")) != b"\r\n":
            yield trailer
        yield trailer


@dataclass(frozen=True)
class Head:
    """The first line and the headers, in order and as they were written."""

    line: str
    headers: list[tuple[str, str]]

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        line, *headers = raw.decode("latin-1").removesuffix("\r\n\r\n").lstrip("\r\n").split("\r\n")
        fields = [header.partition(":") for header in headers]
        return cls(line, [(name, value.strip()) for name, _, value in fields])

    def encode(self) -> bytes:
        return "".join([f"{self.line}\r\n", *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]).encode(
            "latin-1"
        )

    def get(self, name: str) -> str | None:
        return next((value for header, value in self.headers if header.lower() == name), None)

    def without(self, name: str) -> Head:
        return Head(self.line, [header for header in self.headers if header[0].lower() != name])

    def replaced(self, name: str, old: str, new: str) -> Head:
        """Returns a head with `new` for `old` in the header `name`."""
        return Head(self.line, [(n, v.replace(old, new) if n.lower() == name else v) for n, v in self.headers])

    @property
    def status(self) -> int:
        """The status of an answer."""
        return int(self.line.split(" ", 2)[1])

    def keeps_connection(self) -> bool:
        option = (self.get("connection") or "").lower()
        return option == "keep-alive" if "HTTP/1.0" in self.line else option != "close"

    def request_framing(self) -> Framing:
        return self._framing() or 0

    def answer_framing(self, method: str) -> Framing:
        if method == "HEAD" or self.status in _NO_BODY:
            return 0
        framing = self._framing()
        return "until close" if framing is None else framing

    def _framing(self) -> Framing | None:
        if (self.get("transfer-encoding") or "").lower() == "chunked":
            return "chunked"
        length = self.get("content-length")
        return None if length is None else int(length)
