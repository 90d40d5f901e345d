"""The nodes' launchers tell each other their numbers of ranks, and where Horovod's rendezvous server is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from launch._command_line import CommandError
from launch._framework import Start
from launch._network import LOOPBACK, interface_of, interfaces, ipv4_of, is_own, own_address_towards

_ALL = ""
_SERVER = "horovod/server"


class Server(Protocol):
    port: int

    def close(self) -> None: ...


class RendezvousError(CommandError):
    """The nodes have met, but Horovod's ranks could not."""


@dataclass(frozen=True)
class Rendezvous:
    """What a node's ranks must know of one start."""

    address: str
    port: int
    """Of Horovod's server."""
    interface: str
    """By which this node's ranks reach the others."""
    rank_counts: tuple[int, ...]
    """By node."""


class _Node(msgspec.Struct):
    """What a node tells the first."""

    num_ranks: int
    first: str
    """The address by which it reaches the first node."""
    own: str


class _ServerPlace(msgspec.Struct):
    """What the first node tells the others."""

    port: int
    rank_counts: tuple[int, ...]


def meet_first(
    start: Start,
    num_ranks_wanted: int | None,
    interfaces: Collection[str],
    start_server: Callable[[str, Sequence[int]], Server],
) -> tuple[Rendezvous, Server]:
    """On the first node, which starts the server.

    `start_server` is given an address to listen on, "" for all, and the numbers of ranks by node. Raises
    `RendezvousError`, `NoRouteError`, and `RuntimeError` when the nodes' store is gone.
    """
    others = [msgspec.json.decode(start.store.get(_key(node)), type=_Node) for node in range(1, start.num_nodes)]
    rank_counts = (start.local_size, *(node.num_ranks for node in others))
    addresses = {node.first for node in others} or {LOOPBACK}
    # Where addresses are translated, the one that the others use is none of this node's.
    address = next(iter(addresses)) if len(addresses) == 1 and all(map(is_own, addresses)) else _ALL
    outward = own_address_towards(others[0].own) if others and address == _ALL else address
    try:
        server = start_server(address, rank_counts)
    except OSError as error:
        raise RendezvousError(
            f"Horovod's server cannot listen on {address or 'this node'}: {error.strerror}"
        ) from error
    try:
        interface = choose_interface(interfaces, outward)
        start.store.set(_SERVER, msgspec.json.encode(_ServerPlace(server.port, rank_counts)).decode())
        _check_number(rank_counts, num_ranks_wanted)
    except BaseException:
        server.close()
        raise
    return Rendezvous(outward, server.port, interface, rank_counts), server


def meet_other(start: Start, num_ranks_wanted: int | None, interfaces: Collection[str]) -> Rendezvous:
    """On another node. Raises what `meet_first` raises."""
    first = ipv4_of(start.chief_address)
    own = own_address_towards(first)
    interface = choose_interface(interfaces, own)
    node = _Node(start.local_size, first, own)
    start.store.set(_key(start.node_rank), msgspec.json.encode(node).decode())
    server = msgspec.json.decode(start.store.get(_SERVER), type=_ServerPlace)
    _check_number(server.rank_counts, num_ranks_wanted)
    return Rendezvous(first, server.port, interface, server.rank_counts)


def choose_interface(given: Collection[str], own_address: str) -> str:
    """`given` are those that the user has named; empty for all. Raises `RendezvousError`."""
    interface = interface_of(own_address)
    if interface is not None and (not given or interface in given):
        return interface
    if not given:
        raise RendezvousError(f"no interface has the address {own_address}: name one with --network-interfaces")
    names = sorted(interfaces())
    if known := sorted(set(given).intersection(names)):
        return known[0]
    wanted = " or ".join(sorted(given))
    raise RendezvousError(
        f"this node has no interface {wanted}, which --network-interfaces asks for; it has {', '.join(names)}"
    )


def _check_number(rank_counts: Sequence[int], wanted: int | None) -> None:
    if wanted is not None and sum(rank_counts) != wanted:
        counts = " + ".join(map(str, rank_counts))
        raise RendezvousError(
            f"-np {wanted} cannot be had: the nodes have {counts} slots. Leave it out to use them all, give a number "
            "that the nodes divide, or say each host's with -H"
        )


def _key(node: int) -> str:
    return f"horovod/node/{node}"
