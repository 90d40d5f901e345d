"""The bytes between ranks: what is no frame of the peer's ends the connection, and costs neither memory nor a crash."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import tracemalloc
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.joining._accepting import IncomingConnection
from core_sdk._distributed.joining._handshake import AcceptorHandshake, ConnectorHandshake, WrongPeerError
from core_sdk._distributed.transport._connection import Connection
from core_sdk._distributed.transport._encoding import RankFailure, decode, encode, join, split
from core_sdk._distributed.transport._frame_memory import FrameMemory
from core_sdk._distributed.transport._frames import (
    MAX_PAYLOAD_BYTES,
    CollectiveOperation,
    ConnectionEndedError,
    Frame,
    FrameKind,
    Seal,
)
from core_sdk._distributed.transport._messages import Hello, Left, decode_message, encode_message

KEY = b"a key of 32 bytes, or thereabout"
FRAMES = [
    Frame(FrameKind.VALUE, CollectiveOperation.GATHER, 1, b"train.py", b"a payload"),
    Frame(FrameKind.FAILURE, CollectiveOperation.ALLGATHER, 2, b"", b""),
    Frame(FrameKind.VALUE, CollectiveOperation.BROADCAST, 3, 300 * b"s", 100_000 * b"p"),
    Frame(FrameKind.MESSAGE, CollectiveOperation.NONE, 0, b"", b"news"),
]
HEADER = struct.Struct("!BBHQQ")


def seals() -> tuple[Seal, Seal]:
    return Seal(send_key=b"one", receive_key=b"other"), Seal(send_key=b"other", receive_key=b"one")


class Wire:
    """A link whose bytes the test carries from one end to the other."""

    def __init__(self, is_sealed: bool) -> None:
        near, far = seals() if is_sealed else (None, None)
        sending, self.tap = socket.socketpair()
        receiving, self.feed = socket.socketpair()
        self.sender = Connection(sending, near)
        self.receiver = Connection(receiving, far)

    def sent(self, *frames: Frame) -> list[bytes]:
        """Returns the bytes of each frame."""
        return [self._sent(frame) for frame in frames]

    def _sent(self, frame: Frame) -> bytes:
        content = bytearray()
        self.tap.setblocking(False)

        def take() -> None:
            with contextlib.suppress(BlockingIOError):
                while chunk := self.tap.recv(1 << 16):
                    content.extend(chunk)

        self.sender.send(frame, take)
        take()
        return bytes(content)

    def receive(self, content: bytes, *, is_end: bool = False) -> list[Frame]:
        """Feeds bytes to the other end and returns the frames that it reads."""
        frames = []
        waiting = memoryview(content)
        self.feed.setblocking(False)
        while waiting:
            waiting = waiting[self.feed.send(waiting[:10_000]) :]
            frames += self._received()
        if is_end:
            self.feed.shutdown(socket.SHUT_WR)
            frames += self._received()
        return frames

    def _received(self) -> list[Frame]:
        frames = []
        while (frame := self.receiver.receive_nowait()) is not None:
            frames.append(msgspec.structs.replace(frame, payload=bytes(frame.payload)))
        return frames

    def close(self) -> None:
        for end in (self.sender, self.receiver, self.tap, self.feed):
            end.close()


@contextlib.contextmanager
def wire(is_sealed: bool) -> Iterator[Wire]:
    with contextlib.closing(Wire(is_sealed)) as opened:
        yield opened


SEALED = pytest.mark.parametrize("is_sealed", [False, True], ids=["unix", "tcp"])


@SEALED
def test_frames_arrive_as_they_were_sent(is_sealed: bool) -> None:
    """Frames of every kind and size arrive unchanged."""
    with wire(is_sealed) as cut:
        assert cut.receive(b"".join(cut.sent(*FRAMES))) == FRAMES


@settings(max_examples=60, deadline=None)
@given(
    is_sealed=st.booleans(),
    sizes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 200_000)), max_size=5),
    cuts=st.lists(st.integers(1, 70_000), max_size=12),
)
def test_frames_may_arrive_in_any_pieces(is_sealed: bool, sizes: list[tuple[int, int]], cuts: list[int]) -> None:
    """A frame is read when it is complete, in whatever pieces it arrives."""
    frames = [
        Frame(FrameKind.VALUE, CollectiveOperation.GATHER, number, site * b"s", payload * b"p")
        for number, (site, payload) in enumerate(sizes)
    ]

    with wire(is_sealed) as cut:
        content, received = b"".join(cut.sent(*frames)), []
        for num_bytes in cuts:
            piece, content = content[:num_bytes], content[num_bytes:]
            received += cut.receive(piece)
        received += cut.receive(content)

    assert received == frames


def test_a_frame_with_any_byte_altered_is_refused_on_tcp() -> None:
    """On TCP a frame with any byte changed is refused."""
    with wire(True) as cut:
        num_bytes = len(*cut.sent(FRAMES[0]))

    for position in range(num_bytes):
        with wire(True) as cut:
            content = bytearray(*cut.sent(FRAMES[0]))
            content[position] ^= 1
            with pytest.raises(ConnectionEndedError):
                assert cut.receive(bytes(content), is_end=True) == []


REARRANGED: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "repeated": lambda frames: [frames[0], frames[0]],
    "reordered": lambda frames: [frames[1], frames[0]],
    "left out": lambda frames: [frames[0], frames[2]],
    "body of another": lambda frames: [frames[0], frames[1][:36] + frames[2][36:]],
    "truncated": lambda frames: [frames[0], frames[1][:-1] + frames[2]],
}


@pytest.mark.parametrize("how", REARRANGED)
def test_frames_that_are_rearranged_are_refused_on_tcp(how: str) -> None:
    """On TCP frames that are reordered, repeated or missing are refused."""
    frames = [Frame(FrameKind.VALUE, CollectiveOperation.GATHER, number, b"site", b"payload") for number in range(3)]

    with wire(True) as cut:
        received = []
        with pytest.raises(ConnectionEndedError):
            for content in REARRANGED[how](cut.sent(*frames)):
                received += cut.receive(content)

    assert received in ([], frames[:1])


def test_a_frame_cannot_be_turned_back_on_tcp() -> None:
    """On TCP a frame cannot be sent back to its sender."""
    with wire(True) as cut:
        (content,) = cut.sent(FRAMES[0])
        cut.tap.setblocking(True)
        cut.tap.sendall(content)

        with pytest.raises(ConnectionEndedError):
            cut.sender.receive_nowait()


@SEALED
@pytest.mark.parametrize("num_kept", [1, 19, 21, 36, 40])
def test_a_frame_that_ends_early_is_refused(is_sealed: bool, num_kept: int) -> None:
    """A frame that is cut off is refused when the connection ends."""
    with wire(is_sealed) as cut:
        content = b"".join(cut.sent(FRAMES[2]))[:num_kept]

        with pytest.raises(ConnectionEndedError):
            cut.receive(content, is_end=True)


@SEALED
@pytest.mark.parametrize("announced_bytes", [MAX_PAYLOAD_BYTES + 1, 1 << 32, 1 << 63, (1 << 64) - 1])
def test_no_memory_is_taken_for_what_no_rank_would_send(is_sealed: bool, announced_bytes: int) -> None:
    """A frame that announces too many bytes is refused without allocating memory."""
    header = HEADER.pack(FrameKind.VALUE, CollectiveOperation.GATHER, 0, 1, announced_bytes)
    near, _ = seals()
    code = near.seal(header, [])[0] if is_sealed else b""

    with wire(is_sealed) as cut:
        tracemalloc.start()
        try:
            with pytest.raises(ConnectionEndedError, match="bytes was announced"):
                cut.receive(header + code)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak_bytes < 1_000_000


def test_no_memory_is_taken_for_what_is_announced_without_the_key() -> None:
    """A frame header without the right code is refused before memory is allocated."""
    header = HEADER.pack(FrameKind.VALUE, CollectiveOperation.GATHER, 0, 1, MAX_PAYLOAD_BYTES)

    with wire(True) as cut:
        tracemalloc.start()
        try:
            with pytest.raises(ConnectionEndedError, match="without the right code"):
                cut.receive(header + 16 * b"?")
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak_bytes < 1_000_000


def fuzzed(generator: random.Random, whole: bytes) -> bytes:
    """Returns random bytes or a damaged frame."""
    way = generator.randrange(4)
    if way == 0:
        return generator.randbytes(generator.randrange(120))
    content = bytearray(whole)
    for _ in range(generator.randrange(1, 4)):
        content[generator.randrange(len(content))] = generator.randrange(256)
    if way == 2:
        del content[generator.randrange(len(content)) :]
    if way == 3:
        content[: generator.randrange(40)] = generator.randbytes(generator.randrange(40))
    return bytes(content)


FUZZED = pytest.mark.parametrize("num_strings", [3_000, 50_000])


@FUZZED
@SEALED
def test_fuzzed_strings_crash_no_link(is_sealed: bool, num_strings: int) -> None:
    """A fuzzed string crashes no link: it yields no frame, some frame on an unsealed link, or the link's end."""
    generator = random.Random(1)
    with wire(is_sealed) as cut:
        whole = b"".join(cut.sent(FRAMES[0], FRAMES[3]))
    num_frames = num_ends = 0

    for _ in range(num_strings):
        ours, theirs = socket.socketpair()
        link = Connection(ours, seals()[1] if is_sealed else None)
        theirs.send(fuzzed(generator, whole) or b"x")
        theirs.close()
        try:
            while link.receive_nowait() is not None:
                num_frames += 1
        except ConnectionEndedError:
            num_ends += 1
        link.close()

    assert num_ends == num_strings
    # Changes behind the first frame leave that one as it was.
    assert (num_frames < num_strings / 2) if is_sealed else (num_frames > 0)


@FUZZED
@pytest.mark.parametrize("holds_key", [False, True], ids=["strangers", "ranks"])
def test_fuzzed_strings_crash_no_reception(holds_key: bool, num_strings: int) -> None:
    """Random input in place of a proof, or after it, crashes nothing."""
    generator = random.Random(2)
    refusals = (OSError, WrongPeerError, ConnectionEndedError, msgspec.MsgspecError)
    fields = dict.fromkeys(["rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "pid"], 1)
    place = RankIdentity(**fields, host="a host", host_name="its name", python="3.11")
    payload = msgspec.msgpack.encode(Hello(place, "member", False))
    hello = HEADER.pack(FrameKind.HELLO, 0, 0, 0, len(payload)) + payload
    num_admitted = 0

    for _ in range(num_strings):
        ours, theirs = socket.socketpair()
        newcomer = IncomingConnection(ours, KEY)
        if holds_key:
            connector = ConnectorHandshake(KEY)
            theirs.send(connector.knock() + connector.proof(theirs.recv(1024)))
        theirs.send(fuzzed(generator, hello) or b"x")
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(*refusals):
            while True:
                num_admitted += newcomer.read() is not None
        ours.close()
        theirs.close()

    # A few changes leave a place that might be one.
    assert num_admitted > 0 if holds_key else num_admitted == 0


@FUZZED
def test_fuzzed_messages_are_news_or_refused(num_strings: int) -> None:
    """Random messages are decoded to known news or refused."""
    generator = random.Random(3)
    whole = encode_message(Left(1, 2, RankFailure(1, "an error", "a traceback")))
    num_refused = 0

    for _ in range(num_strings):
        try:
            decode_message(fuzzed(generator, whole))
        except msgspec.MsgspecError:
            num_refused += 1

    assert num_refused > num_strings / 2


def test_both_sides_prove_the_key() -> None:
    """Each side refuses a peer without the key, or one that returns its own proof."""
    acceptor, connector = AcceptorHandshake(KEY), ConnectorHandshake(KEY)
    acceptor.hear_knock(connector.knock())
    connector.check(acceptor.reply(connector.proof(acceptor.greeting())))

    with pytest.raises(WrongPeerError):
        AcceptorHandshake(KEY).hear_knock(ConnectorHandshake(b"another key").knock())
    false, victim = AcceptorHandshake(b"another key"), ConnectorHandshake(KEY)
    proof = victim.proof(false.greeting())
    with pytest.raises(WrongPeerError):
        victim.check(proof)
    with pytest.raises(WrongPeerError):
        victim.check(bytes(32))


def test_a_proof_is_worth_nothing_a_second_time() -> None:
    """A proof cannot be used for a second connection."""
    acceptor, connector, other = AcceptorHandshake(KEY), ConnectorHandshake(KEY), AcceptorHandshake(KEY)
    acceptor.hear_knock(connector.knock())
    proof = connector.proof(acceptor.greeting())
    acceptor.reply(proof)

    other.hear_knock(connector.knock())
    with pytest.raises(WrongPeerError):
        other.reply(proof)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_several_contents_travel_as_one(contents: list[bytes]) -> None:
    """Several contents are joined into one and split again."""
    assert split(b"".join(join([[content[:3], content[3:]] for content in contents]))) == contents


def test_memory_of_a_large_frame_serves_again_when_nobody_reads_it() -> None:
    """The memory of a frame is used for the next one of about its size, unless a view of it is left."""
    memory = FrameMemory()
    first, second = memory.take(1000), memory.take(1000)
    view = memoryview(first)
    memory.keep(first)
    memory.keep(second)

    assert memory.take(900) is second
    assert len(second) == 900
    assert memory.take(1000) is not first

    view.release()

    assert memory.take(400) is not first
    assert memory.take(1000) is first


def test_memory_of_large_frames_is_kept_up_to_a_limit() -> None:
    """What is kept does not grow with the number of ranks, and memory of a very large frame is given back."""
    memory = FrameMemory()
    huge, large = bytearray(3 << 20), [bytearray(2 << 20) for _ in range(9)]
    for each in (huge, *large):
        memory.keep(each)

    kept = [memory.take(2 << 20) for _ in range(9)]

    assert sum(any(one is each for each in large) for one in kept) == 8
    assert memory.take(3 << 20) is not huge


def test_large_objects_are_sent_as_they_are() -> None:
    """Large `bytes` are one piece of what is sent, are not copied, and come back equal."""
    value = bytes(range(256)) * (1 << 13)

    pieces = encode(value)

    assert any(piece is value for piece in pieces)
    assert decode(b"".join(pieces)) == value
