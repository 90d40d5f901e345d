"""Two connections between the same ranks: what comes on the one may overtake what comes on the other.

The test plays the ranks on the other side, so as to choose the order.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest
from distributed.ranks import place
from processes import TIMEOUT_S, wait_for

from core_sdk._distributed._topology import RankIdentity, this_rank
from core_sdk._distributed.calls import _chief
from core_sdk._distributed.calls._chief import ChiefChannel
from core_sdk._distributed.calls._control_thread import ControlThread
from core_sdk._distributed.calls._member import MemberChannel
from core_sdk._distributed.joining._join import choose_listen_options, join_ranks
from core_sdk._distributed.joining._options import JoinOptions
from core_sdk._distributed.joining._rendezvous import DirectoryRendezvous
from core_sdk._distributed.transport._connection import Connection, Peer
from core_sdk._distributed.transport._encoding import encode, join
from core_sdk._distributed.transport._frames import Frame, FrameKind
from core_sdk._distributed.transport._messages import (
    Died,
    Left,
    Message,
    Notice,
    Welcome,
    decode_message,
    encode_message,
)
from core_sdk._ground.environment import MeetingPlace, RankPlace
from core_sdk.errors import RankDiedError


class Played:
    """The other end of a channel under test."""

    def __init__(self, rank: int, size: int) -> None:
        self.place = a_place(rank, size)
        data, self._data_end = socket.socketpair()
        control, self._control_end = socket.socketpair()
        self.peer = Peer(self.place, Connection(data, None), Connection(control, None))
        self._data, self._control = Connection(self._data_end, None), Connection(self._control_end, None)

    def say(self, message: Message) -> None:
        """Sends a message on the connection for news."""
        self._control.send(Frame(FrameKind.MESSAGE, 0, 0, b"", encode_message(message)), lambda: None)

    def send(self, frame: Frame) -> None:
        """Sends a frame on the connection for collectives."""
        self._data.send(frame, lambda: time.sleep(0.001))

    def receive(self) -> Frame:
        return self._await(self._data)

    def hear(self) -> Message:
        return decode_message(self._await(self._control).payload)

    def hears_nothing(self, timeout_s: float) -> bool:
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        return not poller.poll(timeout_s * 1000)

    def die(self) -> None:
        self._data.close()
        self._control.close()

    def _await(self, link: Connection) -> Frame:
        poller = select.poll()
        poller.register(link, select.POLLIN)
        while (frame := link.receive_nowait()) is None:
            assert poller.poll(TIMEOUT_S * 1000), "nothing comes"
        return frame


def a_place(rank: int, size: int) -> RankIdentity:
    return this_rank(RankPlace(**place(rank, size)))


@pytest.fixture
def calling() -> Iterator[ThreadPoolExecutor]:
    """Runs the calls of the rank under test in threads."""
    with ThreadPoolExecutor() as executor:
        yield executor


def test_a_result_that_news_has_overtaken_is_no_error(calling: ThreadPoolExecutor) -> None:
    """A rank that gets its result after the news of a death still returns it; the next call fails."""
    chief = Played(0, 3)
    member = MemberChannel(a_place(1, 3), chief.peer, [a_place(rank, 3) for rank in range(3)], TIMEOUT_S)
    result: Future[list[object]] = calling.submit(member.allgather, "mine")
    call = chief.receive()

    chief.say(Died(2, "process 7"))
    wait_for(member._state.has_fault)
    content = b"".join(join([encode("chief's"), [b""], encode("of rank 2")]))
    chief.send(msgspec.structs.replace(call, payload=content))

    assert result.result(TIMEOUT_S) == ["chief's", "mine", "of rank 2"]
    with pytest.raises(RankDiedError):
        member.allgather("mine")
    member.close()
    chief.die()


def test_the_news_of_a_death_waits_for_results_that_are_being_delivered(
    calling: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chief reports a death after it has delivered results that are being sent."""
    monkeypatch.setattr(_chief, "_NEWS_DELAY_S", TIMEOUT_S)  # what is long on a busy machine
    size = 3
    ranks = [Played(rank, size) for rank in (1, 2)]
    chief = ChiefChannel(a_place(0, size), [rank.peer for rank in ranks], TIMEOUT_S)
    chief_value = bytes(30_000_000)
    result: Future[list[bytes]] = calling.submit(chief.allgather, chief_value)
    wait_for(lambda: chief._is_inside)
    for rank in ranks:
        rank.send(Frame(FrameKind.VALUE, 2, 1, chief._call.site if chief._call else b"", encode(b"")[0]))

    ranks[0].receive()
    ranks[0].die()
    hears_nothing = ranks[1].hears_nothing(0.2)
    delivered = ranks[1].receive()
    news = ranks[1].hear()

    assert hears_nothing
    assert len(delivered.payload) > len(chief_value)
    assert len(result.result(TIMEOUT_S)) == size
    assert isinstance(news, Died)
    assert news.rank == 1
    chief.close()
    ranks[1].die()


def test_what_a_rank_has_said_before_it_went_is_heard(calling: ThreadPoolExecutor) -> None:
    """What a rank said before it left is read, even if sending to it fails first."""
    heard: list[Message] = []
    ended = threading.Event()
    rank = Played(1, 2)
    thread = ControlThread(
        {1: rank.peer.control},
        on_message=lambda _, message: heard.append(message),
        on_end=lambda _: ended.set(),
    )
    rank.say(Left(1, 5))
    rank.die()
    thread.post(1, Left(0, 5))

    thread.start()

    assert ended.wait(TIMEOUT_S)
    assert heard == [Left(1, 5)]
    thread.stop(TIMEOUT_S)
    rank.peer.data.close()


def test_a_notice_that_comes_with_the_welcome_is_heard() -> None:
    """A notice that arrives together with the welcome is delivered."""
    chief = Played(0, 2)
    ranks = [a_place(rank, 2) for rank in range(2)]
    chief.say(Welcome(ranks))
    chief.say(Notice("topic", 0, b"stop"))
    welcome = chief.peer.control.receive_nowait()
    heard: list[bytes] = []

    member = MemberChannel(ranks[1], chief.peer, ranks, TIMEOUT_S)
    member.listen("topic", lambda _, content: heard.append(content))

    assert welcome is not None
    wait_for(lambda: heard == [b"stop"])
    member.close()
    chief.die()


def test_a_rank_that_is_not_understood_is_told_so_before_it_is_cut_off(calling: ThreadPoolExecutor) -> None:
    """A rank that sends garbage is told the reason before its connection is closed."""
    rank = Played(1, 2)
    chief = ChiefChannel(a_place(0, 2), [rank.peer], TIMEOUT_S)

    rank._control_end.setblocking(True)
    rank._control_end.sendall(64 * b"\xff")
    told = rank.hear()

    assert isinstance(told, Died)
    assert told.rank == 1
    with pytest.raises(RankDiedError):
        chief.allgather(None)
    chief.close()
    rank.die()


def test_a_rendezvous_is_withdrawn_before_anybody_goes_on(
    calling: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The chief withdraws its rendezvous before any rank returns from joining."""
    meeting = tmp_path_factory.mktemp("meeting")
    meeting.chmod(0o700)
    has_joined = threading.Event()
    had_joined: list[bool] = []

    class Slow(DirectoryRendezvous):
        def withdraw(self) -> None:
            had_joined.append(has_joined.wait(0.2))
            super().withdraw()

    terms = JoinOptions(None, 1, False, None, TIMEOUT_S, TIMEOUT_S)
    reach = choose_listen_options(a_place(0, 2), terms, MeetingPlace.read({}), Slow(meeting))
    joining = calling.submit(join_ranks, a_place(0, 2), terms, Slow(meeting), reach)
    member = join_ranks(a_place(1, 2), terms, DirectoryRendezvous(meeting), reach)
    has_joined.set()
    chief = joining.result(TIMEOUT_S)
    for channel in (member, chief):
        channel.close()

    assert had_joined == [False]
