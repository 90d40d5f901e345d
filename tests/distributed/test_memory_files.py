"""Large objects between the ranks of one node: their bytes stay where they were written, and descriptors travel."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from distributed.conftest import StartRanks
from distributed.ranks import Threads

from core_sdk.core import DistributedContext
from core_sdk.distributed._encoding import Content, decode, encode, encode_into, join, split
from core_sdk.distributed._frames import MAX_PAYLOAD_BYTES, Frame, Kind, LinkEndedError, Operation
from core_sdk.distributed._link import Link
from core_sdk.distributed._memory_file import MIN_BYTES, MemoryFile, MemoryFiles, are_memory_files_available
from core_sdk.errors import RankFailedError

pytestmark = pytest.mark.skipif(
    not are_memory_files_available(),
    reason="NOT TESTED: large objects as memory files; this system has no memfd_create, and they travel as bytes",
)

HEADER = struct.Struct("!BBHQQ")
ALL_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
LARGE = 3 * MIN_BYTES


def frame(sequence: int = 1) -> Frame:
    return Frame(Kind.VALUE, Operation.GATHER, sequence, b"train.py", b"")


def num_descriptors() -> int:
    return len(own_descriptors())


def num_memory_files() -> int:
    return sum("memfd:core-sdk" in _target(path) for path in own_descriptors())


def own_descriptors() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # the directory itself
        return ""


class Pair:
    """Two links that exchange files, or, at one end, a bare socket that says what it likes."""

    def __init__(self, *, family: socket.AddressFamily = socket.AF_UNIX, is_bare: bool = False) -> None:
        near, far = socket.socketpair() if family == socket.AF_UNIX else tcp_pair()
        self.files = MemoryFiles()
        self.receiver = Link(far, None)
        self.receiver.exchange_files(self.files)
        self.bare = near
        if not is_bare:
            self.sender = Link(near, None)
            self.sender.exchange_files(self.files)

    def send(self, *contents: Content, sequence: int = 1) -> None:
        """What does not fit into the connection at once is received meanwhile."""
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


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    """Whatever a test does."""
    before = num_memory_files()
    yield
    assert num_memory_files() == before


@contextlib.contextmanager
def pair(**terms: object) -> Iterator[Pair]:
    with contextlib.closing(Pair(**terms)) as opened:  # type: ignore[arg-type]
        yield opened


def written(value: object) -> MemoryFile:
    content = encode_into(MemoryFiles(), value)
    assert isinstance(content, MemoryFile)
    return content


def test_a_large_object_is_written_into_a_sealed_file_and_a_small_one_is_not() -> None:
    """Neither its writer nor a reader can change it afterwards."""
    small, large = encode_into(MemoryFiles(), "small"), written(os.urandom(LARGE))

    assert isinstance(small, bytes)
    assert fcntl.fcntl(large.fileno(), fcntl.F_GET_SEALS) & ALL_SEALS == ALL_SEALS
    with pytest.raises(PermissionError):
        os.write(large.fileno(), b"x")
    with pytest.raises(PermissionError):
        os.truncate(large.fileno(), 1)


@pytest.mark.parametrize("value", [os.urandom(LARGE), {str(n): n / 7 for n in range(60_000)}, [b"x" * LARGE] * 3])
def test_what_is_read_from_a_file_is_what_was_written(value: object) -> None:
    """By several readers, each from its beginning; the object stands on its own once it is read."""
    file = written(value)
    duplicates = [MemoryFile(os.dup(file.fileno()), len(file)) for _ in range(2)]

    assert [decode(each) for each in duplicates] == [value, value]
    assert bytes(file.view()) == encode(value)


def test_only_the_descriptor_travels_within_a_host() -> None:
    """The frame has none of the bytes."""
    content = os.urandom(LARGE)

    with pair() as opened:
        opened.send(written(content))
        (received,) = opened.received

        assert len(received.payload) == 0
        assert isinstance(received.content, MemoryFile)
        assert decode(received.content) == content


def test_the_bytes_travel_between_hosts() -> None:
    """They are read in place while they are sent."""
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
    """A result has contents of all ranks, large and small."""
    values = ["small", os.urandom(LARGE), b"", os.urandom(2 * LARGE), 7, os.urandom(LARGE)]
    contents = [encode_into(MemoryFiles(), value) for value in values]

    with pair() as opened:
        opened.send(*join(contents))
        (received,) = opened.received

        assert [decode(content) for content in split(received.payload, received.files)] == values
        assert len(received.files) == 3


def test_each_file_comes_with_its_own_frame_when_many_are_read_at_once() -> None:
    """Frames with files and without lie in the connection together."""
    values = [os.urandom(LARGE) if number % 3 else number for number in range(12)]

    with pair() as opened:
        for number, value in enumerate(values):
            opened.sender.send(frame(number), pytest.fail, [encode_into(opened.files, value)])
        opened.received = []
        opened._receive()

        assert [decode(received.content) for received in opened.received] == values
        assert [received.sequence for received in opened.received] == list(range(12))


def test_more_files_than_a_frame_may_have_travel_as_bytes() -> None:
    """A rank needs no more than a few descriptors, however large the group."""
    value = os.urandom(LARGE)
    file = written(value)

    with pair() as opened:
        opened.send(*join([file] * 66))
        (received,) = opened.received

        assert len(received.files) == 64
        assert [decode(each) for each in split(received.payload, received.files)] == [value] * 66


def test_a_file_that_arrives_piece_by_piece_is_waited_for() -> None:
    """Its descriptor has come with the first byte of its announcement."""
    file = written(b"x" * LARGE)
    announcement = HEADER.pack(Kind.FILE, 0, 0, 0, len(file))
    value = HEADER.pack(Kind.VALUE, Operation.GATHER, 0, 1, 0)

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
    return HEADER.pack(Kind.FILE, operation, site_bytes, position, num_bytes)


VALUE = HEADER.pack(Kind.VALUE, Operation.GATHER, 0, 1, 0)
FAILURE = HEADER.pack(Kind.FAILURE, Operation.GATHER, 0, 1, 0)
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
    """And every descriptor that came is closed."""
    before = num_descriptors()

    with pair(is_bare=True) as opened, pytest.raises(LinkEndedError):
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
    """A broken rank cannot take all our descriptors."""
    file = sealed(LARGE)
    before = num_descriptors()

    with pair(is_bare=True) as opened, pytest.raises(LinkEndedError, match="no frame"):
        for number in range(100):
            opened.say(announced(position=number * LARGE), [file])
            opened.receiver.receive_nowait()

    assert num_descriptors() == before
    os.close(file)


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET], ids=["control", "tcp"])
def test_a_link_that_takes_no_files_takes_none(family: socket.AddressFamily) -> None:
    """No files come over TCP, nor among the news."""
    near, far = socket.socketpair() if family == socket.AF_UNIX else tcp_pair()
    link = Link(far, None)
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

    with pytest.raises(LinkEndedError, match="no frame"):
        link.receive_nowait()
    assert num_descriptors() == before
    for end in (near, link):
        end.close()
    os.close(file)


def test_a_process_without_room_for_a_file_says_so() -> None:
    """It is that process's trouble, and not the death of the peer."""
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


class Unreadable:
    """Large, and an error when it is unpickled."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _fail, (self.content,)


def _fail(_content: bytes) -> None:
    raise ZeroDivisionError


def exchange(distributed: DistributedContext) -> list[object]:
    mine = bytes([distributed.rank]) * (LARGE + distributed.rank)
    return [
        distributed.allgather(mine),
        distributed.gather(mine),
        distributed.broadcast(mine),
        distributed.allgather(mine if distributed.rank == 1 else "small"),
        distributed.allgather_local(mine),
    ]


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_every_rank_gets_large_objects(threads: Threads, num_nodes: int, free_port: int) -> None:
    """Of its own node, by Unix sockets; ranks of other nodes get the same."""
    results = threads.run(4, exchange, num_nodes=num_nodes, **meeting(num_nodes, free_port))

    everything = [bytes([rank]) * (LARGE + rank) for rank in range(4)]
    node = 4 // num_nodes
    for rank, result in enumerate(results):
        mixed = ["small", everything[1], "small", "small"]
        local = everything[rank // node * node :][:node]
        assert result == [everything, everything if rank == 0 else None, everything[0], mixed, local]


def meeting(num_nodes: int, port: int) -> dict[str, object]:
    return {} if num_nodes == 1 else {"rendezvous": f"tcp://127.0.0.1:{port}"}


@pytest.fixture
def free_port(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", "a key that all of them know")
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_large_objects_leave_no_descriptor_behind(threads: Threads) -> None:
    """After calls that work, that fail on one rank, and that cannot be unpickled."""

    def script(distributed: DistributedContext) -> None:
        mine = os.urandom(LARGE)
        for _ in range(5):
            distributed.allgather(mine)
            distributed.broadcast(mine)
            distributed.gather(mine)
        for culprit in (0, 1):
            with contextlib.suppress(RankFailedError, TypeError):
                distributed.allgather([mine, threading.Lock()] if distributed.rank == culprit else mine)
            distributed.allgather(None)
        with pytest.raises(ZeroDivisionError):
            distributed.broadcast(Unreadable(mine))
            raise ZeroDivisionError  # the chief keeps its own object

    before = num_descriptors()
    for _ in range(3):
        threads.run(3, script)

    assert num_descriptors() == before


def test_large_broadcasts_do_not_pile_up(threads: Threads) -> None:
    """The chief goes on before its object was read, and waits with the next: descriptors take no room in a socket."""
    chief_is_at: list[int] = []
    member_is_at = [0]

    def script(distributed: DistributedContext) -> None:
        for number in range(30):
            distributed.broadcast(os.urandom(LARGE) if distributed.is_chief else None)
            if distributed.is_chief:
                chief_is_at.append(number - member_is_at[0])
            else:
                time.sleep(0.005)
                member_is_at[0] = number

    threads.run(2, script)

    assert max(chief_is_at) <= 3


COUNTING = """
    import os
    from rank_script import await_mark, join, mark, rank, tell

    def num_memory_files():
        names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return sum("memfd:core-sdk" in os.readlink(name) for name in names if os.path.islink(name))
"""

FORKING = (
    COUNTING
    + """
    import threading
    import time

    with join() as distributed:
        if rank == 0:
            call = threading.Thread(target=distributed.allgather, args=(b"x" * 1_000_000,))
            call.start()
            while not num_memory_files():
                time.sleep(0.001)
            child = os.fork()
            if child == 0:
                os._exit(num_memory_files())
            tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            mark("forked")
            call.join()
        else:
            await_mark("forked")
            distributed.allgather(None)
"""
)


def test_a_fork_in_the_middle_of_a_call_does_not_keep_the_memory(start_ranks: StartRanks) -> None:
    """A child that lives on would hold what its parent has given back."""
    assert start_ranks(FORKING, 2).outcomes()[0].values == [0]


DYING = (
    COUNTING
    + """
    from core_sdk.errors import RankDiedError

    with join() as distributed:
        if rank == 2:
            mark("joined")
            await_mark("never")
        try:
            distributed.allgather(b"x" * 1_000_000)
        except RankDiedError as error:
            tell(error.rank)
        tell(num_memory_files())
"""
)


def test_large_objects_of_a_call_that_fails_are_given_back(start_ranks: StartRanks) -> None:
    """Nobody holds them once a rank has died."""
    group = start_ranks(DYING, 3)
    group.await_mark("joined")
    group[2].kill()

    outcomes = group.outcomes(without=[2])

    assert [outcomes[rank].values for rank in (0, 1)] == [[2, 0]] * 2


IN_ANY_ORDER = """
    import random
    import time
    from rank_script import arguments, join, rank, tell

    size, num_bytes = arguments["size"], arguments["num_bytes"]
    shared, own = random.Random(arguments["seed"]), random.Random(rank)


    def expected(name, contents):
        if name == "broadcast":
            return contents[0]
        return contents if name == "allgather" or rank == 0 else None


    with join() as distributed:
        for number in range(1000):
            name = shared.choice(["allgather", "gather", "broadcast", "broadcast", "broadcast"])
            contents = [[other, number, bytes([other]) * shared.choice(num_bytes)] for other in range(size)]
            time.sleep(own.choice([0, 0, 0, 0.002]))  # some rank is late in every call
            result = getattr(distributed, name)(contents[rank])
            assert result == expected(name, contents), f"a wrong object in call {number}, a {name}"
    tell("all is well")
"""


@pytest.mark.parametrize("size", [2, 4])
def test_objects_of_any_size_come_whole_in_calls_of_any_order(start_ranks: StartRanks, size: int) -> None:
    """As files or in frames, also when some ranks are a call ahead of others."""
    sizes = [0, 100, 60_000, MIN_BYTES - 100, MIN_BYTES, LARGE]

    group = start_ranks(IN_ANY_ORDER, size, arguments={"size": size, "num_bytes": sizes, "seed": size}, timeout_s=20.0)

    assert all(outcome.values == ["all is well"] for outcome in group.outcomes().values()), group.outcomes()
