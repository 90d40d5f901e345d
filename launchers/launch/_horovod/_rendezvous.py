"""The nodes' launchers tell each other their numbers of ranks, and where Horovod's server is."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from launch._command_line import CommandError
from launch._framework import Start
from launch._network import LOOPBACK, interface_names, interface_of, ipv4_of, is_own, own_address_towards
from launch._store import Store

_ALL = ""


class Server(Protocol):
    port: int

    def close(self) -> None: ...


class MeetingError(CommandError):
    """The nodes have met, but Horovod's ranks could not."""

    exit_code = 1


@dataclass(frozen=True)
class Meeting:
    """What a node's ranks must know of one start."""

    address: str
    port: int
    """Of Horovod's server."""
    interface: str
    """By which this node's ranks reach the others."""
    rank_counts: tuple[int, ...]
    """By node."""


class _Arrival(msgspec.Struct):
    """What a node tells the first."""

    word: str
    """New at each start, and the place of the answer: a store may still hold those of earlier starts."""
    num_ranks: int
    first: str
    """The address by which it reaches the first node."""
    own: str


class _Answer(msgspec.Struct):
    port: int
    rank_counts: tuple[int, ...]


def meet_first(
    start: Start,
    num_ranks_wanted: int | None,
    interfaces: Collection[str],
    start_server: Callable[[str, Sequence[int]], Server],
) -> tuple[Meeting, Server]:
    """On the first node, which the others tell their numbers and which starts the server.

    `start_server` is given an address to listen on, "" for all, and the numbers of ranks by node. Raises
    `MeetingError`, and `RuntimeError` when the nodes' store is gone.
    """
    arrivals = [_await_arrival(start.store, node) for node in range(1, start.num_nodes)]
    rank_counts = (start.local_size, *(arrival.num_ranks for arrival in arrivals))
    try:
        _check_number(rank_counts, num_ranks_wanted)
    except MeetingError:
        # For the others to refuse it in the same words.
        _tell(start.store, arrivals, _Answer(0, rank_counts))
        raise
    addresses = {arrival.first for arrival in arrivals} or {LOOPBACK}
    # Behind a translation of addresses the others' is none of ours.
    address = next(iter(addresses)) if len(addresses) == 1 and all(map(is_own, addresses)) else _ALL
    outward = _way_to(arrivals[0].own) if arrivals and address == _ALL else address
    try:
        server = start_server(address, rank_counts)
    except OSError as error:
        raise MeetingError(f"Horovod's server cannot listen on {address or 'this node'}: {error.strerror}") from error
    try:
        interface = choose_interface(interfaces, outward)
        _tell(start.store, arrivals, _Answer(server.port, rank_counts))
    except BaseException:
        server.close()
        raise
    return Meeting(outward, server.port, interface, rank_counts), server


def meet_other(start: Start, num_ranks_wanted: int | None, interfaces: Collection[str]) -> Meeting:
    """On another node. Raises as `meet_first` does."""
    try:
        first = ipv4_of(start.chief_address)
    except OSError as error:
        raise MeetingError(
            f"the first node, {start.chief_address!r}, has no IPv4 address here ({error.strerror}), which Horovod's "
            "ranks need to meet: give --master-addr's like, PET_MASTER_ADDR, as an address or a name that resolves"
        ) from error
    own = _way_to(first)
    interface = choose_interface(interfaces, own)
    arrival = _Arrival(secrets.token_hex(16), start.local_size, first, own)
    start.store.set(_arrival_key(start.node_rank), msgspec.json.encode(arrival).decode())
    answer = msgspec.json.decode(start.store.get(_answer_key(arrival.word)), type=_Answer)
    _check_number(answer.rank_counts, num_ranks_wanted)
    return Meeting(first, answer.port, interface, answer.rank_counts)


def choose_interface(given: Collection[str], own_address: str) -> str:
    """Among those that the user has named, if any, else among all. Raises `MeetingError`."""
    interface = interface_of(own_address)
    if interface is not None and (not given or interface in given):
        return interface
    if not given:
        raise MeetingError(f"no interface has the address {own_address}: name one with --network-interfaces")
    names = interface_names()
    for name in sorted(given):
        if name in names:
            return name
    raise MeetingError(
        f"this node has no interface {' or '.join(sorted(given))}, which --network-interfaces asks for; it has "
        f"{', '.join(names)}"
    )


def _await_arrival(store: Store, node: int) -> _Arrival:
    arrival = msgspec.json.decode(store.get(_arrival_key(node)), type=_Arrival)
    # The store may be that of the next start too, which then waits for the next word.
    store.delete_key(_arrival_key(node))
    return arrival


def _tell(store: Store, arrivals: Iterable[_Arrival], answer: _Answer) -> None:
    for arrival in arrivals:
        store.set(_answer_key(arrival.word), msgspec.json.encode(answer).decode())


def _check_number(rank_counts: Sequence[int], wanted: int | None) -> None:
    if wanted is not None and sum(rank_counts) != wanted:
        counts = " + ".join(map(str, rank_counts))
        raise MeetingError(
            f"-np {wanted} cannot be had: the nodes have {counts} slots. Leave it out to use them all, give a number "
            "that the nodes divide, or say each host's with -H"
        )


def _way_to(address: str) -> str:
    try:
        return own_address_towards(address)
    except OSError as error:
        raise MeetingError(f"there is no way from this node to {address}: {error.strerror}") from error


def _arrival_key(node: int) -> str:
    return f"core-sdk/horovod/arrival/{node}"


def _answer_key(word: str) -> str:
    return f"core-sdk/horovod/answer/{word}"
