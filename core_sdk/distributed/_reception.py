"""The chief's side of joining: lets the ranks of its group in, and nobody else."""

from __future__ import annotations

import contextlib
import logging
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from core_sdk.distributed._handshake import PROOF_BYTES, Acceptor, WrongPeerError
from core_sdk.distributed._link import MAX_PAYLOAD_BYTES, Frame, Kind, Link, LinkEndedError
from core_sdk.distributed._messages import Died, Hello, Place, Refusal, Welcome, encode_message
from core_sdk.distributed._places import problems_among
from core_sdk.errors import ContradictoryRanksError, RankDiedError, RanksMissingError

logger = logging.getLogger("core_sdk.distributed")

_STRANGER_TIMEOUT_S = 10.0
_MAX_STRANGERS = 256
_MAX_HELLO_BYTES = 4096
_MAX_UNIX_PATH_BYTES = 100


@dataclass
class Peer:
    """Another rank, and the two connections to it."""

    place: Place
    data: Link
    control: Link


class Listeners:
    """Where a chief can be reached while its group forms."""

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
        """On all interfaces if `host` is None; gives the port."""
        if host is None and socket.has_dualstack_ipv6():
            listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        else:
            family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
            listener = socket.create_server((host or "", port), family=family, backlog=1024)
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


class _Newcomer:
    """A connection that has not yet proved anything, or not yet said who it is."""

    def __init__(self, connection: socket.socket, key: bytes) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.expires_at = time.monotonic() + _STRANGER_TIMEOUT_S
        self._acceptor = Acceptor(key)
        self._proof = b""
        self.link: Link | None = None
        connection.send(self._acceptor.greeting())

    def read(self) -> Hello | None:
        """None while more must come. Raises `WrongPeerError`, `LinkEndedError`, `OSError`."""
        if self.link is None:
            self._read_proof()
        if self.link is None or (frame := self.link.receive_nowait()) is None:
            return None
        if frame.kind != Kind.HELLO:
            raise WrongPeerError("it did not introduce itself")
        self.link.max_payload_bytes = MAX_PAYLOAD_BYTES
        return msgspec.msgpack.decode(frame.payload, type=Hello)

    def _read_proof(self) -> None:
        chunk = self.socket.recv(PROOF_BYTES - len(self._proof))
        if not chunk:
            raise WrongPeerError("it closed the connection")
        self._proof += chunk
        if len(self._proof) == PROOF_BYTES:
            self.socket.send(self._acceptor.reply(self._proof))
            seal = None if self.socket.family == socket.AF_UNIX else self._acceptor.seal()
            self.link = Link(self.socket, seal, _MAX_HELLO_BYTES)


class Reception:
    """Accepts until everybody has come."""

    def __init__(self, listeners: Listeners, key: bytes, place: Place, timeout_s: float) -> None:
        self._key = key
        self._place = place
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._selector = selectors.DefaultSelector()
        self._newcomers: dict[socket.socket, _Newcomer] = {}
        self._links: dict[str, dict[bool, Link]] = {}
        self._members: dict[str, Place] = {}
        for listener in listeners.sockets:
            self._selector.register(listener, selectors.EVENT_READ)

    def receive_all(self) -> list[Peer]:
        """Every other rank, in order, welcomed. Raises a `JoinError`, or `RankDiedError`."""
        try:
            with self._telling_of_failure():
                while len(self._complete()) < self._place.size - 1:
                    self._step()
                peers = self._complete()
                if problems := problems_among([self._place, *(peer.place for peer in peers)]):
                    raise ContradictoryRanksError(problems)
            self._tell(encode_message(Welcome([self._place, *(peer.place for peer in peers)])))
            return peers
        finally:
            for newcomer in self._newcomers.values():
                newcomer.socket.close()
            self._selector.close()

    def _complete(self) -> list[Peer]:
        return sorted(
            (
                Peer(place, self._links[member][False], self._links[member][True])
                for member, place in self._members.items()
                if len(self._links[member]) == 2
            ),
            key=lambda peer: peer.place.rank,
        )

    @contextlib.contextmanager
    def _telling_of_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._tell(encode_message(_refusal(error)))
            self._close_links()
            raise

    def _step(self) -> None:
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            self._give_up()
        for key, _ in self._selector.select(min(remaining_s, 1.0)):
            connection = key.fileobj
            if key.data is not None:
                raise RankDiedError(key.data.rank, key.data.process)
            if not isinstance(connection, socket.socket):
                continue
            if connection in self._newcomers:
                self._read(self._newcomers[connection])
            else:
                self._accept(connection)
        self._drop_silent()

    def _give_up(self) -> None:
        present = {place.rank for place in self._members.values()} | {self._place.rank}
        missing = [rank for rank in range(self._place.size) if rank not in present]
        if not missing:
            raise ContradictoryRanksError(["not every rank has connected twice"])
        raise RanksMissingError(missing, self._place.size, self._timeout_s)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # gone already, or out of descriptors for the moment
            connection, _ = listener.accept()
            if len(self._newcomers) >= _MAX_STRANGERS:
                self._drop(next(iter(self._newcomers.values())), "too many strangers")
            self._newcomers[connection] = _Newcomer(connection, self._key)
            self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, newcomer: _Newcomer) -> None:
        try:
            hello = newcomer.read()
        except BlockingIOError:
            return
        except (OSError, WrongPeerError, LinkEndedError, msgspec.MsgspecError) as error:
            self._drop(newcomer, str(error))
            return
        if hello is not None and newcomer.link is not None:
            del self._newcomers[newcomer.socket]
            # From now on it has nothing to say until all have come: if it becomes readable, it has died.
            self._selector.modify(newcomer.socket, selectors.EVENT_READ, hello.place)
            self._members[hello.member] = hello.place
            self._links.setdefault(hello.member, {})[hello.is_control] = newcomer.link

    def _drop(self, newcomer: _Newcomer, reason: str) -> None:
        logger.warning("refused a connection to the ranks' channel: %s", reason)
        self._selector.unregister(newcomer.socket)
        del self._newcomers[newcomer.socket]
        newcomer.socket.close()

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for newcomer in [newcomer for newcomer in self._newcomers.values() if newcomer.expires_at < now]:
            self._drop(newcomer, f"it did not say who it is within {_STRANGER_TIMEOUT_S:g} s")

    def _tell(self, message: bytes) -> None:
        for links in self._links.values():
            if True in links:
                with contextlib.suppress(LinkEndedError):
                    links[True].send(Frame(Kind.MESSAGE, 0, 0, b"", message), _never_blocked)

    def _close_links(self) -> None:
        for links in self._links.values():
            for link in links.values():
                link.end_sending()
                link.close()


def _refusal(error: BaseException) -> Refusal:
    match error:
        case ContradictoryRanksError():
            return Refusal(problems=list(error.problems))
        case RanksMissingError():
            return Refusal(missing=list(error.missing), timeout_s=error.timeout_s)
        case RankDiedError():
            return Refusal(died=Died(error.rank, error.process))
        case _:
            return Refusal(problems=[f"rank 0 gave up: {error!r}"])


def _never_blocked() -> None:
    """The first message of a connection always fits into its buffer."""
    raise LinkEndedError("the first message did not fit into the connection")


def _short_private_directory() -> Path:
    """The path of a Unix socket has about a hundred bytes, fewer than some temporary directories."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        directory = Path(tempfile.mkdtemp(prefix="core-sdk-", dir=parent))
        if len(str(directory / "chief.sock").encode()) <= _MAX_UNIX_PATH_BYTES:
            return directory
        directory.rmdir()
    raise OSError(f"no temporary directory has a path short enough for a socket: {tempfile.gettempdir()}")
