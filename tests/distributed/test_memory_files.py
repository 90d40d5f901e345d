"""Memory files, and the links that carry them: the bytes stay where they were written, and descriptors travel."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import resource
import select
import socket
import struct
from collections.abc import Callable, Iterator, Sequence

import pytest
from distributed.memory_files import LARGE, num_descriptors, own_descriptors, requires_memory_files

from core_sdk.distributed.transport._connection import Connection
from core_sdk.distributed.transport._encoding import Content, decode, encode, encode_into, join, split
from core_sdk.distributed.transport._frames import (
    MAX_PAYLOAD_BYTES,
    CollectiveOperation,
    ConnectionEndedError,
    Frame,
    FrameKind,
)
from core_sdk.distributed.transport._memory_file import MIN_BYTES, MemoryFile, MemoryFiles

pytestmark = [requires_memory_files, pytest.mark.usefixtures("nothing_stays_open")]

HEADER = struct.Struct("!BBHQQ")
ALL_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def frame(sequence: int = 1) -> Frame:
    return Frame(FrameKind.VALUE, CollectiveOperation.GATHER, sequence, b"train.py", b"")


class Pair:
    """Two links that exchange files, one of which may be a bare socket."""

    def __init__(self, *, family: socket.AddressFamily = socket.AF_UNIX, is_bare: bool = False) -> None:
        near, far = socket.socketpair() if family == socket.AF_UNIX else tcp_pair()
        self.files = MemoryFiles()
        self.receiver = Connection(far, None)
        self.receiver.exchange_files(self.files)
        self.bare = near
        if not is_bare:
            self.sender = Connection(near, None)
            self.sender.exchange_files(self.files)

    def send(self, *contents: Content, sequence: int = 1) -> None:
        """Sends a frame and receives at the other end at the same time."""
        self.received: list[Frame] = []
        self.sender.send(frame(sequence), self._receive, contents)
        self._receive()

    def _receive(self) -> None:
        while (received := self.receiver.receive_nowait()) is not None:
            self.received.append(received)

    def say(self, content: bytes, descriptors: Sequence[int] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self.bare.sendmsg([content], rights)

    def close(self) -> None:
        self.bare.close()
        self.receiver.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return near, far


@contextlib.contextmanager
def pair(**terms: object) -> Iterator[Pair]:
    with contextlib.closing(Pair(**terms)) as opened:  # type: ignore[arg-type]
        yield opened


def written(value: object) -> MemoryFile:
    content = encode_into(MemoryFiles(), value)
    assert isinstance(content, MemoryFile)
    return content


def test_a_large_object_is_written_into_a_sealed_file_and_a_small_one_is_not() -> None:
    """A large object is written into a sealed file, which cannot be changed; a small one is not."""
    small, large = encode_into(MemoryFiles(), "small"), written(os.urandom(LARGE))

    assert isinstance(small, bytes)
    assert fcntl.fcntl(large.fileno(), fcntl.F_GET_SEALS) & ALL_SEALS == ALL_SEALS
    with pytest.raises(PermissionError):
        os.write(large.fileno(), b"x")
    with pytest.raises(PermissionError):
        os.truncate(large.fileno(), 1)


@pytest.mark.parametrize("value", [os.urandom(LARGE), {str(n): n / 7 for n in range(60_000)}, [b"x" * LARGE] * 3])
def test_what_is_read_from_a_file_is_what_was_written(value: object) -> None:
    """Several readers read the file's object unchanged, each from the beginning."""
    file = written(value)
    duplicates = [MemoryFile(os.dup(file.fileno()), len(file)) for _ in range(2)]

    assert [decode(each) for each in duplicates] == [value, value]
    assert bytes(file.view()) == encode(value)


def test_only_the_descriptor_travels_within_a_host() -> None:
    """Within a host only the file's descriptor is sent."""
    content = os.urandom(LARGE)

    with pair() as opened:
        opened.send(written(content))
        (received,) = opened.received

        assert len(received.payload) == 0
        assert isinstance(received.content, MemoryFile)
        assert decode(received.content) == content


def test_the_bytes_travel_between_hosts() -> None:
    """Between hosts the file's bytes are sent."""
    content = os.urandom(LARGE)

    with pair(family=socket.AF_INET) as opened:
        file = written(content)
        poller = select.poll()
        poller.register(opened.receiver, select.POLLIN)
        opened.send(file)
        while not opened.received:
            poller.poll(10_000)
            opened._receive()

        assert decode(opened.received[0].content) == content


def test_files_and_bytes_keep_their_order_in_one_frame() -> None:
    """Large and small contents of one frame keep their order."""
    values = ["small", os.urandom(LARGE), b"", os.urandom(2 * LARGE), 7, os.urandom(LARGE)]
    contents = [encode_into(MemoryFiles(), value) for value in values]

    with pair() as opened:
        opened.send(*join(contents))
        (received,) = opened.received

        assert [decode(content) for content in split(received.payload, received.files)] == values
        assert len(received.files) == 3


def test_each_file_comes_with_its_own_frame_when_many_are_read_at_once() -> None:
    """When many frames are read at once, each gets its own file."""
    values = [os.urandom(LARGE) if number % 3 else number for number in range(12)]

    with pair() as opened:
        for number, value in enumerate(values):
            opened.sender.send(frame(number), pytest.fail, [encode_into(opened.files, value)])
        opened.received = []
        opened._receive()

        assert [decode(received.content) for received in opened.received] == values
        assert [received.sequence for received in opened.received] == list(range(12))


def test_more_files_than_a_frame_may_have_travel_as_bytes() -> None:
    """Files beyond the limit of a frame are sent as bytes."""
    value = os.urandom(LARGE)
    file = written(value)

    with pair() as opened:
        opened.send(*join([file] * 66))
        (received,) = opened.received

        assert len(received.files) == 64
        assert [decode(each) for each in split(received.payload, received.files)] == [value] * 66


def test_a_file_that_arrives_piece_by_piece_is_waited_for() -> None:
    """A file that is announced piece by piece is received when the announcement is complete."""
    file = written(b"x" * LARGE)
    announcement = HEADER.pack(FrameKind.FILE, 0, 0, 0, len(file))
    value = HEADER.pack(FrameKind.VALUE, CollectiveOperation.GATHER, 0, 1, 0)

    with pair(is_bare=True) as opened:
        opened.say(announcement[:1], [file.fileno()])
        assert opened.receiver.receive_nowait() is None
        for byte in (announcement + value)[1:-1]:
            opened.say(bytes([byte]))
            assert opened.receiver.receive_nowait() is None
        opened.say(value[-1:])
        received = opened.receiver.receive_nowait()

        assert received is not None
        assert decode(received.content) == b"x" * LARGE


def unsealed(num_bytes: int) -> int:
    descriptor = os.memfd_create("core-sdk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(descriptor, num_bytes)
    return descriptor


def half_sealed(num_bytes: int) -> int:
    descriptor = unsealed(num_bytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, ALL_SEALS & ~fcntl.F_SEAL_WRITE)
    return descriptor


def sealed(num_bytes: int) -> int:
    descriptor = unsealed(num_bytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, ALL_SEALS)
    return descriptor


def announced(num_bytes: int = LARGE, *, position: int = 0, operation: int = 0, site_bytes: int = 0) -> bytes:
    return HEADER.pack(FrameKind.FILE, operation, site_bytes, position, num_bytes)


VALUE = HEADER.pack(FrameKind.VALUE, CollectiveOperation.GATHER, 0, 1, 0)
FAILURE = HEADER.pack(FrameKind.FAILURE, CollectiveOperation.GATHER, 0, 1, 0)
WRONG: dict[str, list[tuple[bytes, Callable[[], list[int]]]]] = {
    "none": [(announced(), list)],
    "two at once": [(announced(), lambda: [sealed(LARGE), sealed(LARGE)])],
    "ten at once": [(announced(), lambda: [sealed(LARGE) for _ in range(10)])],
    "two in pieces": [(announced()[:5], lambda: [sealed(LARGE)]), (announced()[5:], lambda: [sealed(LARGE)])],
    "unannounced": [(VALUE, lambda: [sealed(LARGE)]), (VALUE, list)],
    "in the middle of a frame": [(VALUE[:7], lambda: [sealed(LARGE)]), (VALUE[7:], list)],
    "unsealed": [(announced(), lambda: [unsealed(LARGE)])],
    "not sealed against writing": [(announced(), lambda: [half_sealed(LARGE)])],
    "longer": [(announced(), lambda: [sealed(LARGE + 1)])],
    "shorter": [(announced(), lambda: [sealed(LARGE - 1)])],
    "empty": [(announced(0), lambda: [sealed(0)])],
    "too small": [(announced(MIN_BYTES - 1), lambda: [sealed(MIN_BYTES - 1)])],
    "too large": [(announced(MAX_PAYLOAD_BYTES + 1), lambda: [sealed(MAX_PAYLOAD_BYTES + 1)])],
    "too large together": [
        (announced(MAX_PAYLOAD_BYTES), lambda: [sealed(MAX_PAYLOAD_BYTES)]),
        (announced(MAX_PAYLOAD_BYTES, position=MAX_PAYLOAD_BYTES), lambda: [sealed(MAX_PAYLOAD_BYTES)]),
    ],
    "no memory file": [(announced(), lambda: [os.open("/dev/zero", os.O_RDONLY)])],
    "a directory": [(announced(), lambda: [os.open("/", os.O_RDONLY)])],
    "twice for one position": [(announced(), lambda: [sealed(LARGE)]), (announced(), lambda: [sealed(LARGE)])],
    "for a failure": [(announced(), lambda: [sealed(LARGE)]), (FAILURE, list)],
    "with an operation": [(announced(operation=1), lambda: [sealed(LARGE)])],
    "with a call site": [(announced(site_bytes=1), lambda: [sealed(LARGE)])],
}


@pytest.mark.parametrize("how", WRONG)
def test_what_is_not_the_announced_file_ends_the_link(how: str) -> None:
    """A descriptor that does not match its announcement ends the link and is closed."""
    before = num_descriptors()

    with pair(is_bare=True) as opened, pytest.raises(ConnectionEndedError):
        for content, make in WRONG[how]:
            descriptors = make()
            opened.say(content, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            while opened.receiver.receive_nowait() is not None:
                pass
        opened.receiver.receive_nowait()

    assert num_descriptors() == before


def test_more_files_than_any_frame_has_end_the_link() -> None:
    """Too many files in a frame end the link and are closed."""
    file = sealed(LARGE)
    before = num_descriptors()

    with pair(is_bare=True) as opened, pytest.raises(ConnectionEndedError, match="no frame"):
        for number in range(100):
            opened.say(announced(position=number * LARGE), [file])
            opened.receiver.receive_nowait()

    assert num_descriptors() == before
    os.close(file)


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET], ids=["control", "tcp"])
def test_a_link_that_takes_no_files_takes_none(family: socket.AddressFamily) -> None:
    """A link for TCP or for news refuses files."""
    near, far = socket.socketpair() if family == socket.AF_UNIX else tcp_pair()
    link = Connection(far, None)
    file = sealed(LARGE)
    before = num_descriptors()

    if family == socket.AF_UNIX:
        near.sendmsg([announced()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))])
    else:
        near.sendall(announced())
        link.exchange_files(MemoryFiles())
    poller = select.poll()
    poller.register(link, select.POLLIN)
    poller.poll(10_000)

    with pytest.raises(ConnectionEndedError, match="no frame"):
        link.receive_nowait()
    assert num_descriptors() == before
    for end in (near, link):
        end.close()
    os.close(file)


def test_a_process_without_room_for_a_file_says_so() -> None:
    """A process that cannot open more files raises that error and does not blame its peer."""
    with pair() as opened:
        file = written(b"x" * LARGE)
        opened.sender.send(frame(), pytest.fail, [file])
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(path.name) for path in own_descriptors()) + 1
        taken = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits[1]))
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))

            with pytest.raises(OSError, match="Too many open files"):
                opened.receiver.receive_nowait()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for descriptor in taken:
                os.close(descriptor)
