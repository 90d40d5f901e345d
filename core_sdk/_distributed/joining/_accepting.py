"""The chief's side of joining: it accepts the ranks of its group, and nobody else."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import selectors
import socket
import time
from collections.abc import Callable, Sequence

import msgspec

from core_sdk._distributed._topology import RankIdentity, problems_among
from core_sdk._distributed.joining._handshake import KNOCK_BYTES, PROOF_BYTES, AcceptorHandshake, WrongPeerError
from core_sdk._distributed.joining._listeners import Listeners
from core_sdk._distributed.transport._connection import Connection, Peer
from core_sdk._distributed.transport._frames import MAX_PAYLOAD_BYTES, ConnectionEndedError, FrameKind
from core_sdk._distributed.transport._messages import Died, Hello, JoinRefused, Welcome, decode_hello, encode_message
from core_sdk._ground.descriptors import moved_up_socket
from core_sdk.errors import ContradictoryRanksError, RankDiedError, RanksMissingError

logger = logging.getLogger("core_sdk.distributed")

# The time within which a connection must prove the key.
_STRANGER_TIMEOUT_S = 10.0
_MAX_STRANGERS = 256
_MAX_HELLO_BYTES = 4096
_MAX_WARNINGS = 5
_TELL_TIMEOUT_S = 5.0


def welcome(identity: RankIdentity, peers: Sequence[Peer]) -> None:
    """Tells all ranks that every rank has joined."""
    message = encode_message(Welcome([identity, *(peer.identity for peer in peers)]))
    for peer in peers:
        _tell(peer.control, message)


class RankAcceptor:
    """Accepts connections until every rank has joined."""

    def __init__(
        self,
        listeners: Listeners,
        key: bytes,
        identity: RankIdentity,
        timeout_s: float,
        check: Callable[[], None],
    ) -> None:
        """`check` is called at least once a second; it raises when waiting has become useless."""
        self._key = key
        self._identity = identity
        self._timeout_s = timeout_s
        self._check = check
        self._deadline = time.monotonic() + timeout_s
        self._selector = selectors.DefaultSelector()
        self._incoming: dict[socket.socket, IncomingConnection] = {}
        self._strangers: dict[socket.socket, IncomingConnection] = {}
        """The incoming connections that have not sent a valid knock."""
        self._connections: dict[str, dict[bool, Connection]] = {}
        self._members: dict[str, RankIdentity] = {}
        self._num_refused = 0
        for listener in listeners.sockets:
            self._selector.register(listener, selectors.EVENT_READ)

    def receive_all(self) -> list[Peer]:
        """Blocks until every other rank has joined, and returns them in rank order. They wait for the welcome.

        Raises a `JoinError` or `RankDiedError`, after it has sent the reason to the ranks that wait.
        """
        has_formed = False
        try:
            while len(self._complete()) < self._identity.size - 1:
                self._step()
            peers = self._complete()
            if problems := problems_among([self._identity, *(peer.identity for peer in peers)]):
                raise ContradictoryRanksError(problems)
            has_formed = True
            return peers
        except BaseException as error:
            message = encode_message(_join_refused(error))
            for connection in self._waiting_connections():
                _tell(connection, message)
            raise
        finally:
            self._close(keep_complete=has_formed)

    def _close(self, *, keep_complete: bool) -> None:
        for incoming in self._incoming.values():
            incoming.socket.close()
        for connections in self._connections.values():
            if not keep_complete or len(connections) != 2:
                for connection in connections.values():
                    connection.end_sending()
                    connection.close()
        self._selector.close()

    def _complete(self) -> list[Peer]:
        return sorted(
            (
                Peer(identity, self._connections[member][False], self._connections[member][True])
                for member, identity in self._members.items()
                if len(self._connections[member]) == 2
            ),
            key=lambda peer: peer.identity.rank,
        )

    def _waiting_connections(self) -> list[Connection]:
        """Returns the connections of ranks that wait for an answer, even if their introduction has not been read."""
        incoming = [each.connection for each in self._incoming.values() if each.connection is not None]
        return incoming + [connections[True] for connections in self._connections.values() if True in connections]

    def _step(self) -> None:
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            self._give_up()
        self._check()
        for key, _ in self._selector.select(min(remaining_s, 1.0)):
            sock = key.fileobj
            if not isinstance(sock, socket.socket):
                continue
            if key.data is not None:
                self._lose(sock, key.data)
            elif sock in self._incoming:
                self._read(self._incoming[sock])
            elif sock.fileno() >= 0:
                self._accept(sock)
        self._drop_silent()

    def _lose(self, sock: socket.socket, hello: Hello) -> None:
        """Handles a readable connection of a rank. It has ended, since ranks send nothing until all have joined."""
        connections = self._connections[hello.member]
        if len(connections) == 2:
            self._check()  # the rank may have left because another one has died
            raise RankDiedError(hello.identity.known_as, hello.identity.process)
        # The rank's other connection may have been dropped among many strangers. Then the rank tries again.
        del self._connections[hello.member], self._members[hello.member]
        self._selector.unregister(sock)
        sock.close()

    def _give_up(self) -> None:
        present = {peer.identity.rank for peer in self._complete()} | {self._identity.rank}
        missing = [rank for rank in range(self._identity.size) if rank not in present]
        raise RanksMissingError(missing, self._identity.size, self._timeout_s)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock = moved_up_socket(listener.accept()[0])
        except OSError as error:  # the peer has gone already, or this process has too many open files
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._drop_oldest()
            return
        try:
            incoming = IncomingConnection(sock, self._key)
        except OSError:
            sock.close()
            return
        self._incoming[sock] = self._strangers[sock] = incoming
        self._selector.register(sock, selectors.EVENT_READ)
        # A rank knocks as soon as it connects, so that it is never dropped as a stranger.
        self._read(incoming)
        self._keep_few()

    def _keep_few(self) -> None:
        num_known = len(self._incoming) - len(self._strangers)
        if len(self._strangers) > _MAX_STRANGERS or num_known > 2 * self._identity.size + _MAX_STRANGERS:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drops the oldest stranger; without strangers, the oldest incoming connection."""
        if (oldest := next(iter((self._strangers or self._incoming).values()), None)) is not None:
            self._drop(oldest, "too many strangers")

    def _read(self, incoming: IncomingConnection) -> None:
        try:
            hello = incoming.read()
        except BlockingIOError:
            return
        except (OSError, WrongPeerError, ConnectionEndedError, msgspec.MsgspecError) as error:
            self._drop(incoming, str(error))
            return
        finally:
            if incoming.has_knocked:
                self._strangers.pop(incoming.socket, None)
        if hello is not None and incoming.connection is not None:
            del self._incoming[incoming.socket]
            self._selector.modify(incoming.socket, selectors.EVENT_READ, hello)
            self._members[hello.member] = hello.identity
            self._connections.setdefault(hello.member, {})[hello.is_control] = incoming.connection

    def _drop(self, incoming: IncomingConnection, reason: str) -> None:
        self._num_refused += 1
        level = logging.WARNING if self._num_refused <= _MAX_WARNINGS else logging.DEBUG
        logger.log(level, "refused a connection to the ranks' channel: %s", reason)
        self._selector.unregister(incoming.socket)
        del self._incoming[incoming.socket]
        self._strangers.pop(incoming.socket, None)
        incoming.socket.close()

    def _drop_silent(self) -> None:
        now = time.monotonic()
        # The connections are in the order in which they came.
        for incoming in list(itertools.takewhile(lambda each: each.expires_at < now, self._incoming.values())):
            # A connection that has proved the key belongs to a rank whose introduction is late.
            if incoming.connection is None:
                self._drop(incoming, f"it did not say who it is within {_STRANGER_TIMEOUT_S:g} s")


class IncomingConnection:
    """A connection that has not yet proved the key, or has proved it and not yet said which rank it is."""

    def __init__(self, sock: socket.socket, key: bytes) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.expires_at = time.monotonic() + _STRANGER_TIMEOUT_S
        self._acceptor = AcceptorHandshake(key)
        self._said = b""
        self.has_knocked = False
        self.connection: Connection | None = None
        sock.send(self._acceptor.greeting())

    def read(self) -> Hello | None:
        """Returns the introduction, or None if more bytes must come.

        Raises `WrongPeerError`, `ConnectionEndedError`, `OSError`, or `msgspec.MsgspecError`.
        """
        if self.connection is None:
            self._read_proof()
        # The introduction may have come together with the proof.
        if self.connection is None or (frame := self.connection.receive_nowait()) is None:
            return None
        if frame.kind != FrameKind.HELLO:
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


def _join_refused(error: BaseException) -> JoinRefused:
    match error:
        case ContradictoryRanksError():
            return JoinRefused(problems=list(error.problems))
        case RanksMissingError():
            return JoinRefused(missing=list(error.missing), timeout_s=error.timeout_s)
        case RankDiedError():
            return JoinRefused(died=Died(error.rank, error.process))
        case _:
            return JoinRefused(problems=[f"rank 0 gave up: {error!r}"])


def _tell(control: Connection, message: bytes) -> None:
    """Sends a message. Ignores a connection that has ended, which is noticed later."""
    with contextlib.suppress(ConnectionEndedError):
        control.send_message(message, _TELL_TIMEOUT_S)
