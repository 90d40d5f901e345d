"""The chief's side of joining: lets the ranks of its group in, and nobody else."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from core_sdk.distributed._frames import Frame, Kind, LinkEndedError
from core_sdk.distributed._handshake import WrongPeerError
from core_sdk.distributed._link import Link
from core_sdk.distributed._listeners import Listeners
from core_sdk.distributed._messages import Died, Hello, Place, Refusal, Welcome, encode_message
from core_sdk.distributed._newcomer import STRANGER_TIMEOUT_S, Newcomer
from core_sdk.distributed._places import problems_among
from core_sdk.errors import ContradictoryRanksError, RankDiedError, RanksMissingError

logger = logging.getLogger("core_sdk.distributed")

_MAX_STRANGERS = 256
_MAX_WARNINGS = 5
_TELL_TIMEOUT_S = 5.0


@dataclass
class Peer:
    """Another rank, and the two connections to it."""

    place: Place
    data: Link
    control: Link


def _no_check() -> None:
    """Nothing but the time-out ends the wait."""


def welcome(place: Place, peers: Sequence[Peer]) -> None:
    """Tells all that all have come."""
    message = encode_message(Welcome([place, *(peer.place for peer in peers)]))
    for peer in peers:
        _tell(peer.control, message)


class Reception:
    """Accepts until everybody has come."""

    def __init__(
        self, listeners: Listeners, key: bytes, place: Place, timeout_s: float, check: Callable[[], None] = _no_check
    ) -> None:
        """`check` is called every second, and raises when it is no use to wait any longer."""
        self._key = key
        self._place = place
        self._timeout_s = timeout_s
        self._check = check
        self._deadline = time.monotonic() + timeout_s
        self._selector = selectors.DefaultSelector()
        self._newcomers: dict[socket.socket, Newcomer] = {}
        self._strangers: dict[socket.socket, Newcomer] = {}
        """Those of the newcomers that have not knocked."""
        self._links: dict[str, dict[bool, Link]] = {}
        self._members: dict[str, Place] = {}
        self._num_refused = 0
        for listener in listeners.sockets:
            self._selector.register(listener, selectors.EVENT_READ)

    def receive_all(self) -> list[Peer]:
        """Every other rank, in order; they wait to be welcomed. Raises a `JoinError`, or `RankDiedError`."""
        try:
            with self._telling_of_failure():
                while len(self._complete()) < self._place.size - 1:
                    self._step()
                peers = self._complete()
                if problems := problems_among([self._place, *(peer.place for peer in peers)]):
                    raise ContradictoryRanksError(problems)
            return peers
        finally:
            self._turn_away()
            self._selector.close()

    def _turn_away(self) -> None:
        """Those that have not joined after all."""
        for newcomer in self._newcomers.values():
            newcomer.socket.close()
        for links in self._links.values():
            if len(links) != 2:
                for link in links.values():
                    link.close()

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
            refusal = encode_message(_refusal(error))
            for link in self._listening_links():
                _tell(link, refusal)
            self._close_links()
            raise

    def _listening_links(self) -> list[Link]:
        """Of ranks that wait for our word; some may have said their own, and it was not yet read."""
        newcomers = [newcomer.link for newcomer in self._newcomers.values() if newcomer.link is not None]
        return newcomers + [links[True] for links in self._links.values() if True in links]

    def _step(self) -> None:
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            self._give_up()
        self._check()
        for key, _ in self._selector.select(min(remaining_s, 1.0)):
            connection = key.fileobj
            if not isinstance(connection, socket.socket):
                continue
            if key.data is not None:
                self._lose(connection, key.data)
            elif connection in self._newcomers:
                self._read(self._newcomers[connection])
            elif connection.fileno() >= 0:
                self._accept(connection)
        self._drop_silent()

    def _lose(self, connection: socket.socket, hello: Hello) -> None:
        """Until all have come a rank has nothing to say: its connection has ended."""
        links = self._links[hello.member]
        if len(links) == 2:
            raise RankDiedError(hello.place.known_as, hello.place.process)
        # Perhaps its other connection was refused among many strangers: then it comes again.
        del self._links[hello.member], self._members[hello.member]
        self._selector.unregister(connection)
        connection.close()

    def _give_up(self) -> None:
        present = {peer.place.rank for peer in self._complete()} | {self._place.rank}
        missing = [rank for rank in range(self._place.size) if rank not in present]
        raise RanksMissingError(missing, self._place.size, self._timeout_s)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:  # gone already; or there are too many connections for this process
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._drop_oldest()
            return
        try:
            newcomer = Newcomer(connection, self._key)
        except OSError:
            connection.close()
            return
        self._newcomers[connection] = self._strangers[connection] = newcomer
        self._selector.register(connection, selectors.EVENT_READ)
        # A rank knocks as it connects: it is none of those among whom we choose.
        self._read(newcomer)
        self._keep_few()

    def _keep_few(self) -> None:
        num_known = len(self._newcomers) - len(self._strangers)
        if len(self._strangers) > _MAX_STRANGERS or num_known > 2 * self._place.size + _MAX_STRANGERS:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """A stranger, if there is one."""
        if (oldest := next(iter((self._strangers or self._newcomers).values()), None)) is not None:
            self._drop(oldest, "too many strangers")

    def _read(self, newcomer: Newcomer) -> None:
        try:
            hello = newcomer.read()
        except BlockingIOError:
            return
        except (OSError, WrongPeerError, LinkEndedError, msgspec.MsgspecError) as error:
            self._drop(newcomer, str(error))
            return
        finally:
            if newcomer.has_knocked:
                self._strangers.pop(newcomer.socket, None)
        if hello is not None and newcomer.link is not None:
            del self._newcomers[newcomer.socket]
            self._selector.modify(newcomer.socket, selectors.EVENT_READ, hello)
            self._members[hello.member] = hello.place
            self._links.setdefault(hello.member, {})[hello.is_control] = newcomer.link

    def _drop(self, newcomer: Newcomer, reason: str) -> None:
        self._num_refused += 1
        level = logging.WARNING if self._num_refused <= _MAX_WARNINGS else logging.DEBUG
        logger.log(level, "refused a connection to the ranks' channel: %s", reason)
        self._selector.unregister(newcomer.socket)
        del self._newcomers[newcomer.socket]
        self._strangers.pop(newcomer.socket, None)
        newcomer.socket.close()

    def _drop_silent(self) -> None:
        now = time.monotonic()
        # They stand in the order of their coming.
        for newcomer in list(itertools.takewhile(lambda each: each.expires_at < now, self._newcomers.values())):
            # One that has proved the key waits for its welcome: what it said last is only late.
            if newcomer.link is None:
                self._drop(newcomer, f"it did not say who it is within {STRANGER_TIMEOUT_S:g} s")

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


def _tell(control: Link, message: bytes) -> None:
    """A rank that is gone meanwhile is noticed later."""

    def blocked() -> None:
        poller = select.poll()
        poller.register(control, select.POLLOUT)
        if not poller.poll(_TELL_TIMEOUT_S * 1000):
            raise LinkEndedError("it has not read for seconds")

    with contextlib.suppress(LinkEndedError):
        control.send(Frame(Kind.MESSAGE, 0, 0, b"", message), blocked)
