"""One connection that somebody has opened to a chief while its group forms."""

from __future__ import annotations

import socket
import time

from core_sdk.distributed.joining._handshake import KNOCK_BYTES, PROOF_BYTES, AcceptorHandshake, WrongPeerError
from core_sdk.distributed.transport._connection import Connection
from core_sdk.distributed.transport._frames import MAX_PAYLOAD_BYTES, Kind
from core_sdk.distributed.transport._messages import Hello, decode_hello

STRANGER_TIMEOUT_S = 10.0
"""The time within which a connection must prove the key."""
_MAX_HELLO_BYTES = 4096


class IncomingConnection:
    """A connection that has not yet proved the key, or has proved it and not yet said which rank it is."""

    def __init__(self, sock: socket.socket, key: bytes) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.expires_at = time.monotonic() + STRANGER_TIMEOUT_S
        self._acceptor = AcceptorHandshake(key)
        self._said = b""
        self.has_knocked = False
        self.connection: Connection | None = None
        sock.send(self._acceptor.greeting())

    def read(self) -> Hello | None:
        """The introduction; None while more must come. Raises `WrongPeerError`, `ConnectionEndedError`, `OSError`."""
        if self.connection is None:
            self._read_proof()
        # The introduction may be there already.
        if self.connection is None or (frame := self.connection.receive_nowait()) is None:
            return None
        if frame.kind != Kind.HELLO:
            raise WrongPeerError("it did not introduce itself")
        self.connection.max_payload_bytes = MAX_PAYLOAD_BYTES
        return decode_hello(frame.payload)

    def _read_proof(self) -> None:
        chunk = self.socket.recv(KNOCK_BYTES + PROOF_BYTES - len(self._said))
        if not chunk:
            raise WrongPeerError("it closed the connection")
        self._said += chunk
        if len(self._said) >= KNOCK_BYTES and not self.has_knocked:
            self._acceptor.hear_knock(self._said[:KNOCK_BYTES])
            self.has_knocked = True
        if len(self._said) == KNOCK_BYTES + PROOF_BYTES:
            self.socket.send(self._acceptor.reply(self._said[KNOCK_BYTES:]))
            seal = None if self.socket.family == socket.AF_UNIX else self._acceptor.seal()
            self.connection = Connection(self.socket, seal, _MAX_HELLO_BYTES)
