"""How the ranks of a group come together, and what becomes of those who do not, or do not belong to it."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from distributed.conftest import StartRanks
from distributed.ranks import Threads, place, together
from distributed.strangers import KINDS, Bomb, Chief, dripping, read
from processes import TIMEOUT_S, wait_for
from promises import promise

from core_sdk._distributed._topology import host_identity
from core_sdk._distributed.joining._handshake import GREETING_BYTES
from core_sdk._distributed.joining._neighbours import directory_of_name
from core_sdk._distributed.joining._rendezvous import ChiefAddress
from core_sdk._distributed.transport._frames import Frame, FrameKind
from core_sdk.core import DistributedContext
from core_sdk.errors import ChannelError, ContradictoryRanksError, JoinError, RanksMissingError

TRANSPORTS = pytest.mark.parametrize("force_tcp", [False, True], ids=["unix", "tcp"])
KEY = "a key that every rank was given"
NAMED_WITHIN_S = 2.0


@contextlib.contextmanager
def waiting_chief(terms: dict[str, Any], size: int = 2) -> Iterator[list[object]]:
    """Runs a chief that waits for its ranks and yields the list that gets its result or error."""
    outcome: list[object] = []

    def run() -> None:
        try:
            with DistributedContext(**place(0, size), **terms) as distributed:
                outcome.append(distributed.allgather("chief"))
        except ChannelError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield outcome
    thread.join(TIMEOUT_S)
    assert not thread.is_alive(), "the chief hangs"


@TRANSPORTS
@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_neither_joins_nor_keeps_others_from_joining(threads: Threads, kind: str, force_tcp: bool) -> None:
    """A stranger of any kind neither joins nor delays the ranks."""
    terms = threads.terms(force_tcp=force_tcp)

    with waiting_chief(terms) as gathered:
        strangers = KINDS[kind](Chief(terms["rendezvous"]))
        began_at = time.monotonic()
        with DistributedContext(**place(1, 2), **terms) as distributed:
            joined_after_s = time.monotonic() - began_at
            assert distributed.allgather("member") == ["chief", "member"]
    for stranger in strangers:
        stranger.close()

    assert gathered == [["chief", "member"]]
    assert joined_after_s < 4.0  # a stranger may be silent for 5 s


@TRANSPORTS
def test_a_stranger_that_sends_byte_after_byte_delays_nobody(threads: Threads, force_tcp: bool) -> None:
    """A stranger that sends byte after byte does not delay the ranks."""
    terms = threads.terms(force_tcp=force_tcp)

    with waiting_chief(terms) as gathered, dripping(Chief(terms["rendezvous"])):
        began_at = time.monotonic()
        with DistributedContext(**place(1, 2), **terms) as distributed:
            joined_after_s = time.monotonic() - began_at
            distributed.allgather("member")

    assert gathered == [["chief", "member"]]
    assert joined_after_s < 4.0  # a stranger may be silent for 5 s


@TRANSPORTS
def test_strangers_may_keep_coming(threads: Threads, force_tcp: bool) -> None:
    """Ranks join the chief while strangers keep connecting; if too many wait, the oldest connection is dropped."""
    terms = threads.terms(force_tcp=force_tcp, join_timeout_s=30.0)
    is_over = threading.Event()

    def keep_coming(chief: Chief) -> None:
        connections = []
        with contextlib.suppress(OSError):
            while not is_over.is_set():
                connections.append(chief.connect())
        for connection in connections:
            connection.close()

    with waiting_chief(terms, size=4) as gathered:
        crowd = threading.Thread(target=keep_coming, args=(Chief(terms["rendezvous"]),))
        crowd.start()

        def join(number: int) -> list[str]:
            with DistributedContext(**place(number + 1, 4), **terms) as distributed:
                return distributed.allgather("member")

        results = together(3, join).by_rank()
        is_over.set()
        crowd.join()

    assert [*gathered, *results] == [["chief", "member", "member", "member"]] * 4


@promise("strangers-not-unpickled")
@TRANSPORTS
def test_nothing_is_unpickled_that_did_not_come_from_a_rank(threads: Threads, tmp_path: Path, force_tcp: bool) -> None:
    """Nothing is unpickled while ranks join, even from a peer that holds the key."""
    crater = tmp_path / "crater"
    bomb = Bomb(crater).pickled()
    terms = threads.terms(force_tcp=force_tcp)

    def at_once(chief: Chief, connection: socket.socket) -> None:
        connection.sendall(bomb)

    def as_proof(chief: Chief, connection: socket.socket) -> None:
        read(connection, GREETING_BYTES)
        connection.sendall(bomb.ljust(64, b"."))

    def after_a_false_proof(chief: Chief, connection: socket.socket) -> None:
        connection.sendall(64 * b"\0" + bomb)

    def as_a_frame(kind: int) -> Callable[[Chief, socket.socket], None]:
        def send(chief: Chief, connection: socket.socket) -> None:
            chief.prove(connection, chief.address.key).send(Frame(kind, 0, 0, b"", bomb), lambda: None)

        return send

    with waiting_chief(terms) as gathered:
        chief = Chief(terms["rendezvous"])
        for send in (
            at_once,
            as_proof,
            after_a_false_proof,
            *map(as_a_frame, range(FrameKind.HELLO, FrameKind.MESSAGE + 2)),
        ):
            with chief.connect() as connection:
                send(chief, connection)
                connection.settimeout(TIMEOUT_S)
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(1024):
                        pass
        with DistributedContext(**place(1, 2), **terms) as distributed:
            distributed.allgather("member")

    assert gathered == [["chief", "member"]]
    assert not crater.exists()


@pytest.mark.parametrize("call", ["gather", "allgather", "broadcast"])
@TRANSPORTS
def test_nobody_can_connect_once_all_have_come(threads: Threads, call: str, force_tcp: bool) -> None:
    """After all ranks have joined, nothing can connect to the chief."""
    terms = threads.terms(force_tcp=force_tcp)
    chiefs: list[Chief] = []

    def run_rank(rank: int) -> int:
        if rank == 1:
            chiefs.append(Chief(terms["rendezvous"]))
        with DistributedContext(**place(rank, 2), **terms) as distributed:
            for _ in range(20):
                if rank == 0:
                    with pytest.raises(OSError):
                        wait_for(lambda: bool(chiefs))
                        chiefs[0].connect()
                getattr(distributed, call)(rank)
            return len(distributed.allgather(rank))

    assert together(2, run_rank).by_rank() == [2, 2]


def test_ranks_that_one_process_has_started_find_each_other(start_ranks: StartRanks) -> None:
    """Ranks with a common parent find each other without an address, in several groups at once."""
    source = """
    from rank_script import join, rank, tell

    with join() as distributed:
        tell(distributed.allgather(rank))
    """
    groups = [start_ranks(source, size, rendezvous=None, pub_port=4000 + size) for size in (2, 3, 4)]

    for size, group in zip((2, 3, 4), groups, strict=True):
        assert [outcome.values for outcome in group.outcomes().values()] == [[list(range(size))]] * size


def test_a_rendezvous_that_a_killed_chief_has_left_behind_does_not_mislead(start_ranks: StartRanks) -> None:
    """The rendezvous of a killed chief does not mislead the next group, even if its ranks come first."""
    dead = start_ranks("from rank_script import join; join()", 2, ranks=[0])
    meeting = dead.meeting
    Chief(meeting)
    dead[0].kill()
    source = """
    from rank_script import join, rank, tell

    with join() as distributed:
        tell(distributed.allgather(rank))
    """

    members = start_ranks(source, 3, ranks=[1, 2], rendezvous=meeting)
    chief = start_ranks(source, 3, ranks=[0], rendezvous=meeting)

    assert chief.outcomes()[0].values == [[0, 1, 2]]
    assert [outcome.values for outcome in members.outcomes().values()] == [[[0, 1, 2]]] * 2


NODES = pytest.mark.parametrize("ranks_per_node", [1, 2])


@NODES
def test_ranks_of_two_nodes_meet_at_an_address_that_all_were_given(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, free_port: int, ranks_per_node: int
) -> None:
    """Ranks of two nodes that hold the key meet at a given address, and local calls stay on the node."""
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", KEY)

    def script(distributed: DistributedContext) -> list[object]:
        rank = distributed.rank
        gathered = distributed.gather_local(rank)
        calls = [distributed.allgather(rank), distributed.allgather_local(rank), distributed.broadcast_local(rank)]
        return [*calls, gathered, distributed.get_num_agents(), len(set(distributed.hosts))]

    results = threads.run(
        2 * ranks_per_node, script, num_nodes=2, rendezvous=f"tcp://127.0.0.1:{free_port}", timeout_s=TIMEOUT_S
    )

    everyone = list(range(2 * ranks_per_node))
    for rank, result in enumerate(results):
        node = [other for other in everyone if other // ranks_per_node == rank // ranks_per_node]
        assert result == [everyone, node, node[0], node if rank == node[0] else None, 2, 1]


def test_a_port_is_free_again_for_the_next_group(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    """A port can be used by the next group at once, also on a single node."""
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", KEY)

    for _ in range(10):
        rendezvous = f"tcp://localhost:{free_port}"
        assert threads.run(2, lambda distributed: distributed.allgather(1), rendezvous=rendezvous) == [[1, 1]] * 2


def test_a_node_on_which_a_rank_dies_is_no_riddle_to_the_other_node(start_ranks: StartRanks, free_port: int) -> None:
    """The death of a rank is reported on both nodes with its global number."""
    ranks = start_ranks(
        """
        import os, signal
        from rank_script import join, rank, tell

        distributed = join()
        distributed.allgather(rank)
        distributed.allgather_local(rank)
        if rank == 3:
            tell("dies")
            os.kill(os.getpid(), signal.SIGKILL)
        (distributed.allgather_local if rank == 2 else distributed.allgather)(rank)
        """,
        4,
        num_nodes=2,
        rendezvous=f"tcp://127.0.0.1:{free_port}",
        variables={"CORE_SDK_CHANNEL_KEY": KEY},
    )

    others = ranks.outcomes(without=[3])

    assert [outcome.error for outcome in others.values()] == ["RankDiedError"] * 3
    assert all(outcome.text.startswith("rank 3 (") for outcome in others.values())
    assert max(outcome.ended_at for outcome in others.values()) - ranks[3].time_of("dies") < NAMED_WITHIN_S


MISSING = ["is killed", "exits", "is stopped", "is slow", "does not join"]


@TRANSPORTS
@pytest.mark.parametrize("culprit", [0, 1], ids=["the chief", "a member"])
@pytest.mark.parametrize("fault", MISSING)
def test_a_rank_that_does_not_come_is_named_within_the_time_out(
    start_ranks: StartRanks, fault: str, culprit: int, force_tcp: bool
) -> None:
    """A rank that does not join is named on all others within the timeout."""
    ranks = start_ranks(
        """
        import os, signal, time
        from rank_script import arguments, await_mark, join, rank, tell

        tell("begins")
        if rank == arguments["culprit"]:
            if arguments["fault"] == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif arguments["fault"] == "exits":
                os._exit(3)
            elif arguments["fault"] == "is stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif arguments["fault"] == "is slow":
                await_mark("too late")
            else:
                raise SystemExit
        join()
        """,
        arguments={"fault": fault, "culprit": culprit},
        force_tcp=force_tcp,
        join_timeout_s=0.6,
    )

    others = ranks.outcomes(without=[culprit])
    ranks.mark("too late")

    expected = "could not reach rank 0, the chief," if culprit == 0 else "rank 1 of 3 did not join within 0.6 s"
    assert all(expected in outcome.text for outcome in others.values()), others
    began_at = min(ranks[rank].time_of("begins") for rank in others)
    assert max(outcome.ended_at for outcome in others.values()) - began_at < 0.6 + NAMED_WITHIN_S


@TRANSPORTS
@pytest.mark.parametrize("culprit", [0, 1], ids=["the chief", "a member"])
@pytest.mark.parametrize("status", ["-9", "3"], ids=["is killed", "exits"])
def test_a_rank_that_dies_while_all_wait_for_another_is_named_at_once(
    start_ranks: StartRanks, status: str, culprit: int, force_tcp: bool
) -> None:
    """The death of a rank is reported at once while all wait for another one."""
    ranks = start_ranks(
        """
        import os, signal
        from rank_script import join, mark_when_waiting

        signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
        mark_when_waiting()
        join()
        """,
        4,
        ranks=[0, 1, 2],
        force_tcp=force_tcp,
    )
    for rank in range(3):
        ranks.await_mark(f"rank {rank} waits")
    if status == "3":
        ranks[culprit].send_when_waiting()
    else:
        ranks[culprit].kill()
    ranks[culprit].outcome()
    died_at = time.monotonic()

    others = ranks.outcomes(without=[culprit])

    process = f"process {ranks[culprit].pid} on {socket.gethostname()}"
    expected = "ended while rank" if culprit == 0 else "died, or its connection was cut"
    assert all(f"rank {culprit} ({process}) {expected}" in outcome.text for outcome in others.values()), others
    assert max(outcome.ended_at for outcome in others.values()) - died_at < NAMED_WITHIN_S


@TRANSPORTS
def test_a_chief_that_is_stopped_while_others_join_is_named(start_ranks: StartRanks, force_tcp: bool) -> None:
    """A chief that is frozen while ranks join is named, by those that it let in and by others."""
    source = "from rank_script import join, mark_when_waiting; mark_when_waiting(); join(join_timeout_s=2.0)"
    ranks = start_ranks(source, 4, ranks=[0, 1], force_tcp=force_tcp)
    ranks.await_mark("rank 1 waits")
    ranks[0].stop()
    late = start_ranks(source, 4, ranks=[2], force_tcp=force_tcp, rendezvous=ranks.meeting)

    let_in, not_let_in = ranks[1].outcome(), late[2].outcome()

    assert (let_in.error, not_let_in.error) == ("JoinError", "JoinError")
    assert f"rank 0 (process {ranks[0].pid} on " in let_in.text
    assert "let rank 1 in and has not answered since" in let_in.text
    assert "it connects, and does not answer" in not_let_in.text


@TRANSPORTS
def test_a_rank_may_come_late_if_it_is_in_time(threads: Threads, force_tcp: bool) -> None:
    """A late rank joins if it is within the timeout, whether it is the chief or not."""
    for slow in (0, 1):
        terms = threads.terms(force_tcp=force_tcp)

        def join(rank: int, slow: int = slow, terms: dict[str, Any] = terms) -> list[int]:
            time.sleep(0.4 if rank == slow else 0.0)
            with DistributedContext(**place(rank, 3), **terms) as distributed:
                return distributed.allgather(rank)

        assert together(3, join).by_rank() == [[0, 1, 2]] * 3


def test_the_chief_says_who_is_missing_however_long_the_others_have_waited(threads: Threads) -> None:
    """A rank that found the chief late waits for its answer beyond its own timeout."""
    terms = threads.terms(join_timeout_s=1.0)

    def join(rank: int) -> None:
        time.sleep(0.8 if rank == 0 else 0.0)
        DistributedContext(**place(rank, 3), **terms)

    errors = together(2, join).errors

    assert [type(errors[rank]) for rank in (0, 1)] == [RanksMissingError] * 2
    assert [error.missing for error in errors.values() if isinstance(error, RanksMissingError)] == [(2,), (2,)]


def test_a_rank_with_another_key_does_not_join(
    start_ranks: StartRanks, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    """A rank with another key is refused with that reason, and the others miss it."""
    source = "from rank_script import join; join(join_timeout_s=1.0)"
    rendezvous = f"tcp://127.0.0.1:{free_port}"
    ours = start_ranks(source, ranks=[0, 1], rendezvous=rendezvous, variables={"CORE_SDK_CHANNEL_KEY": KEY})
    theirs = start_ranks(source, ranks=[2], rendezvous=rendezvous, variables={"CORE_SDK_CHANNEL_KEY": KEY[::-1]})

    outcomes = ours.outcomes() | theirs.outcomes()

    assert [outcomes[rank].error for rank in range(3)] == ["RanksMissingError"] * 2 + ["JoinError"]
    assert all("rank 2 of 3 did not join" in outcomes[rank].text for rank in (0, 1))
    assert f"127.0.0.1:{free_port}: it does not accept the key of this rank" in outcomes[2].text
    assert "refused a connection to the ranks' channel: it does not hold the key of this group" in outcomes[0].stderr


CONTRADICTIONS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a rank twice": ([place(0, 3), place(1, 3), place(1, 3)], "there are 2 processes with rank 1"),
    "sizes": ([place(0, 2), place(1, 3)], "size is 2 on rank 0, 3 on rank 1"),
    "a local rank twice": (
        [place(0, 2), place(1, 2) | {"local_rank": 0}],
        "node 0 has 2 ranks, and there rank 0 is 0 of 2, rank 1 is 0 of 2",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_ranks_that_contradict_each_other_are_refused_all_together(threads: Threads, case: str) -> None:
    """If ranks contradict each other, all of them raise an error with the contradiction."""
    places, problem = CONTRADICTIONS[case]
    terms = threads.terms()

    errors = together(len(places), lambda number: DistributedContext(**places[number], **terms)).errors

    assert [type(errors[number]) for number in range(len(places))] == [ContradictoryRanksError] * len(places)
    assert all(problem in str(error) for error in errors.values())


def test_a_second_chief_is_refused_and_does_not_disturb_the_first(threads: Threads) -> None:
    """A second chief is refused at once and does not disturb the first."""
    terms = threads.terms()

    with waiting_chief(terms) as gathered:
        Chief(terms["rendezvous"])
        with pytest.raises(ContradictoryRanksError, match="another rank 0 is waiting for its ranks in the directory"):
            DistributedContext(**place(0, 2), **terms)
        with DistributedContext(**place(1, 2), **terms) as distributed:
            distributed.allgather("member")

    assert gathered == [["chief", "member"]]


NUMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "one alone": ({"rank": 1}, "size, local_rank, local_size, cross_rank, cross_size must be given too, beside rank"),
    "one missing": (
        {key: number for key, number in place(1, 2).items() if key != "local_size"},
        "local_size must be given too",
    ),
    "a rank beyond the size": (place(1, 2) | {"rank": 2}, "rank is 2; it must be between 0 and 1, below size"),
    "a negative rank": (place(1, 2) | {"local_rank": -1}, "local_rank is -1; it must be between 0 and 1"),
    "no ranks": (place(0, 1) | {"size": 0}, "size is 0; it must be at least 1"),
    "one node of two": (
        place(0, 2) | {"local_size": 1},
        "size is 2 and local_size 1; on a single node they are the same",
    ),
    "a node of another size": (place(0, 2) | {"local_size": 1}, "on a single node they are the same"),
    "too few for the nodes": (
        place(0, 2) | {"cross_size": 2},
        "size is 2, too few for 2 nodes of which one has 2 ranks",
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_that_cannot_be_are_refused_at_once(case: str) -> None:
    """Impossible numbers are refused without a search for other ranks."""
    numbers, problem = NUMBERS[case]

    with pytest.raises(ValueError) as caught:
        DistributedContext(**numbers)

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"rank": "0"}, "rank is '0'; it must be an integer"),
        ({"cross_size": 1.0}, "cross_size is 1.0; it must be an integer"),
        ({"pub_port": "12360"}, "pub_port is '12360'; it must be an integer"),
        ({"port_offset": None}, "port_offset is None; it must be an integer"),
        ({"timeout_s": "60"}, "timeout_s is '60'; it must be a number of seconds"),
        ({"join_timeout_s": None}, "join_timeout_s is None; it must be a number of seconds"),
    ],
)
def test_what_is_no_number_is_refused_by_name(wrong: dict[str, Any], problem: str) -> None:
    """A number of another type is refused by its name."""
    with pytest.raises(TypeError) as caught:
        DistributedContext(**(place(0, 2) | wrong))

    assert str(caught.value) == problem


def listening_at(port: int) -> set[str]:
    """Returns the addresses at which this port is open."""
    connections = psutil.Process().net_connections("tcp")
    found = [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]
    return {address.ip for address in found if address.port == port}


@pytest.mark.parametrize(
    ("chief_ip", "bound"),
    [
        pytest.param("127.0.0.1", {"127.0.0.1"}, id="an address of this host"),
        pytest.param("localhost", {"::", "0.0.0.0"}, id="a name, which may mean another address here than elsewhere"),
        pytest.param("192.0.2.1", {"::", "0.0.0.0"}, id="an address that is translated on its way here"),
    ],
)
def test_a_chief_that_is_given_its_address_can_be_reached_only_there(
    monkeypatch: pytest.MonkeyPatch, free_port: int, chief_ip: str, bound: set[str]
) -> None:
    """A chief with a given address listens only there."""
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", KEY)
    terms: dict[str, Any] = {"chief_ip": chief_ip, "pub_port": free_port, "join_timeout_s": TIMEOUT_S}

    def run_rank(rank: int) -> set[str]:
        if rank == 1:
            wait_for(lambda: bool(listening_at(free_port)))
            found = listening_at(free_port)
            terms["chief_ip"] = "127.0.0.1"
        with DistributedContext(**place(rank, 2, num_nodes=2), **terms):
            return found if rank == 1 else set()

    assert together(2, run_rank).by_rank()[1] <= bound


def silent_listener(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def web_server(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>" + 100 * b" ")


def hanging_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


WRONG_CHIEFS = {
    "nobody": (None, "Connection refused"),
    "silent": (silent_listener, "it connects, and does not answer"),
    "web server": (web_server, "what answers there is no rank"),
    "hanging up": (hanging_up, "it does not greet"),
}


@pytest.mark.parametrize("kind", WRONG_CHIEFS)
def test_a_chief_that_cannot_be_reached_is_described(
    monkeypatch: pytest.MonkeyPatch, free_port: int, kind: str
) -> None:
    """The error says where the chief was looked for and what was found there."""
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", KEY)
    answer, finding = WRONG_CHIEFS[kind]

    with answering(free_port, answer), pytest.raises(JoinError) as caught:
        DistributedContext(**place(1, 2), rendezvous=f"tcp://127.0.0.1:{free_port}", join_timeout_s=0.5)

    message = str(caught.value)
    assert message.startswith(f"rank 1 could not reach rank 0, the chief, through 127.0.0.1:{free_port} within 0.5 s")
    assert f"127.0.0.1:{free_port}: {finding}" in message


@contextlib.contextmanager
def answering(port: int, answer: Callable[[socket.socket], None] | None) -> Iterator[None]:
    """Runs another server at this port, or none."""
    if answer is None:
        yield
        return
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is in use is named in the chief's error."""
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", KEY)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(JoinError, match=f"rank 0 cannot be reached at port {port} of 127.0.0.1: .*in use"):
            DistributedContext(**place(0, 2), rendezvous=f"tcp://127.0.0.1:{port}", join_timeout_s=0.5)


@pytest.mark.parametrize(
    "rendezvous",
    ["tcp://localhost", "tcp://:80", "tcp://host:port", "tcp://host:99999", "http://host:80", "", "tcp://["],
)
def test_a_rendezvous_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, rendezvous: str) -> None:
    """An invalid rendezvous is refused and quoted."""
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", KEY)

    with pytest.raises(ValueError) as caught:
        DistributedContext(**place(0, 2), rendezvous=rendezvous)

    assert str(caught.value) == f"rendezvous is {rendezvous!r}; it must be a directory, or tcp://HOST:PORT"


def test_a_rendezvous_directory_may_have_any_name(threads: Threads, tmp_path: Path) -> None:
    """A rendezvous directory may have any name, also one with characters of URLs."""
    rendezvous = str(tmp_path / "50%20 #1?x=y:80")

    assert threads.run(2, lambda distributed: distributed.allgather(1), rendezvous=rendezvous) == [[1, 1]] * 2
    assert Path(rendezvous).is_dir()


def test_several_nodes_need_a_key(monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    """Ranks on several nodes need a key of at least 16 bytes."""
    nodes = place(0, 2, num_nodes=2)
    rendezvous = f"tcp://127.0.0.1:{free_port}"

    monkeypatch.delenv("CORE_SDK_CHANNEL_KEY", raising=False)
    with pytest.raises(JoinError, match="the ranks on 2 nodes have no key"):
        DistributedContext(**nodes, rendezvous=rendezvous)
    with pytest.raises(JoinError, match="the ranks on 2 nodes have no key"):
        DistributedContext(**nodes, chief_ip="127.0.0.1")
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", "short")
    with pytest.raises(ValueError, match="CORE_SDK_CHANNEL_KEY has 5 bytes; it must have at least 16"):
        DistributedContext(**nodes, rendezvous=rendezvous)
    with pytest.raises(ValueError, match="pass chief_ip"):
        DistributedContext(**nodes)


def make_open(directory: Path) -> None:
    directory.mkdir(mode=0o755)


def make_group_readable(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o750)


def give_away(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can give a directory to another user")
    os.chown(directory, 12345, 12345)


def make_a_file(directory: Path) -> None:
    directory.touch(mode=0o600)


def make_a_link(directory: Path) -> None:
    target = directory.with_name("target")
    target.mkdir(mode=0o700)
    directory.symlink_to(target)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("spoil", [make_open, make_group_readable, give_away, make_a_file, make_a_link])
def test_ranks_do_not_meet_where_others_may_listen(tmp_path: Path, spoil: Callable[[Path], None], rank: int) -> None:
    """Ranks refuse to meet in a directory that other users can read, since the key is there."""
    directory = tmp_path / "meeting"
    spoil(directory)

    with pytest.raises(JoinError, match="is not a directory that this user alone can enter") as caught:
        DistributedContext(**place(rank, 2), rendezvous=str(directory), join_timeout_s=0.5)

    assert str(directory) in str(caught.value)


def test_a_rendezvous_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A rendezvous directory that cannot be made is named with the system's reason."""
    (tmp_path / "file").touch()

    with pytest.raises(JoinError, match=f"the ranks cannot meet in {tmp_path}/file/meeting: Not a directory"):
        DistributedContext(**place(0, 2), rendezvous=str(tmp_path / "file" / "meeting"))


@pytest.mark.parametrize("culprit", [2, 3], ids=["a local chief", "a member"])
def test_a_death_between_joining_all_and_joining_the_node_is_named_at_once(
    start_ranks: StartRanks, free_port: int, culprit: int
) -> None:
    """A death between joining all ranks and joining the node's is reported at once."""
    ranks = start_ranks(
        """
        import os, time
        from core_sdk._distributed.joining import _join
        from rank_script import arguments, join, rank, tell

        def dying(join):
            def join_or_die(rendezvous, *rest):
                if rendezvous.where == "the group of all ranks":
                    die()
                return join(rendezvous, *rest)
            return join_or_die

        def die(*_):
            tell("dies")
            os._exit(3)

        if rank == arguments["culprit"]:
            _join.join_chief = dying(_join.join_chief)
            _join.RankAcceptor = die
        distributed = join()
        distributed.allgather(rank)
        """,
        4,
        num_nodes=2,
        arguments={"culprit": culprit},
        rendezvous=f"tcp://127.0.0.1:{free_port}",
        variables={"CORE_SDK_CHANNEL_KEY": KEY},
    )

    others = ranks.outcomes(without=[culprit])

    assert [outcome.error for outcome in others.values()] == ["RankDiedError"] * 3, others
    assert all(f"rank {culprit} (process {ranks[culprit].pid} on " in outcome.text for outcome in others.values())
    assert max(outcome.ended_at for outcome in others.values()) - ranks[culprit].time_of("dies") < NAMED_WITHIN_S


def test_a_death_while_a_second_group_forms_is_named_by_the_chief(start_ranks: StartRanks) -> None:
    """A death while a second group forms is reported with the dead rank's number."""
    ranks = start_ranks(
        """
        import os
        from core_sdk._distributed.joining import _accepting, _join
        from rank_script import await_mark, join, mark_when_waiting, rank

        def die(*_):
            await_mark("rank 1 waits")
            os._exit(3)

        distributed = join()
        distributed.allgather(rank)
        if rank == 0:
            _accepting.min = lambda remaining_s, _: remaining_s  # looks around only when a connection changes
        elif rank == 1:
            mark_when_waiting()
        else:
            _join.join_chief = die
        distributed.background_channel()
        """,
        3,
    )

    others = ranks.outcomes(without=[2])

    assert [outcome.error for outcome in others.values()] == ["RankDiedError"] * 2, others
    assert all(outcome.text.startswith("rank 2 (") for outcome in others.values()), others


class Shells:
    """Ranks of which each has a shell for its parent, as in terminals of their own."""

    def __init__(self, folder: Path, source: str) -> None:
        self._script = folder / "script.py"
        self._script.write_text(textwrap.dedent(source))
        self._started: list[subprocess.Popen[str]] = []

    def start(self, rank: int, *arguments: str) -> None:
        command = shlex.join([sys.executable, str(self._script), str(rank), *arguments])
        # With something to do afterwards the shell stays, and is the parent.
        shell = subprocess.Popen(["sh", "-c", f"{command}; exit $?"], stdout=subprocess.PIPE, text=True)
        self._started.append(shell)

    def outputs(self) -> list[str]:
        return [shell.communicate(timeout=TIMEOUT_S)[0] for shell in self._started]


JOINING_BY_NUMBERS = """
    import sys, time
    from core_sdk.core import DistributedContext

    rank, size, number, delay_s = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    time.sleep(delay_s)
    with DistributedContext(
        rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1,
        pub_port=number, join_timeout_s=60,
    ) as distributed:
        sys.stdout.write(str(distributed.allgather((rank, sys.argv[5]))) + chr(10))
"""


def test_ranks_of_which_each_has_a_parent_of_its_own_find_each_other(
    tmp_path: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks without a common parent find each other by user, home, number and size."""
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "home"))
    shells = Shells(tmp_path, JOINING_BY_NUMBERS)
    for size, number in ((2, 7), (3, 7), (2, 8)):
        for rank in reversed(range(size)):
            shells.start(rank, str(size), str(number), str(rank / 5), "here")

    outputs = shells.outputs()

    expected = [f"{[(rank, 'here') for rank in range(size)]}\n" for size in (2, 3) for _ in range(size)]
    assert outputs == [*expected, *expected[:2]]
    assert list(temporary_folder.iterdir()) == []


def test_ranks_of_one_parent_do_not_meet_those_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of one parent do not meet ranks of another parent that runs the same script."""
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "home"))
    script, launcher = tmp_path / "script.py", tmp_path / "launcher.py"
    script.write_text(textwrap.dedent(JOINING_BY_NUMBERS))
    launcher.write_text(
        textwrap.dedent("""
        import subprocess, sys
        name, late = sys.argv[2:]
        ranks = [
            subprocess.Popen(
                [sys.executable, sys.argv[1], str(rank), "2", "7", "3" if str(rank) == late else "0", name]
            )
            for rank in range(2)
        ]
        sys.exit(max(rank.wait() for rank in ranks))
        """)
    )
    launchers = [
        subprocess.Popen([sys.executable, str(launcher), str(script), name, late], stdout=subprocess.PIPE, text=True)
        for name, late in (("one", "0"), ("other", "1"))
    ]

    outputs = [each.communicate(timeout=TIMEOUT_S)[0] for each in launchers]

    assert outputs == [2 * f"{[(0, name), (1, name)]}\n" for name in ("one", "other")]


def test_two_trainings_that_have_all_in_common_take_turns_to_meet(
    tmp_path: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups with the same name meet one after the other, despite a killed chief's leftovers."""
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "home"))
    left_behind = directory_of_name(tmp_path / "home", 7, 2)
    left_behind.mkdir(mode=0o700)
    address = ChiefAddress(
        key=32 * b"k", host=host_identity(), process="one that was killed", unix_path=str(tmp_path / "x")
    )
    (left_behind / "chief").write_bytes(msgspec.msgpack.encode(address))
    (left_behind / "lock").touch()
    shells = Shells(tmp_path, JOINING_BY_NUMBERS)
    for name in ("one", "other"):
        for rank in (0, 1):
            shells.start(rank, "2", "7", "0", name)

    outputs = shells.outputs()

    assert all(output.count("(") == 2 for output in outputs), outputs


def test_ranks_do_not_meet_where_another_user_has_been_before_them(
    tmp_path: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A meeting directory that other users can enter is refused and named."""
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "home"))
    size = 16  # other processes of the suite may be taken for some of its ranks
    squatted = directory_of_name(tmp_path / "home", 7, size)
    squatted.mkdir()
    squatted.chmod(0o777)

    with pytest.raises(JoinError, match="this user alone can enter"):
        DistributedContext(**place(0, size), pub_port=7, join_timeout_s=10)
