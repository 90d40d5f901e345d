"""The exchange in which the nodes' launchers learn the numbers of ranks, and the address of Horovod's server."""

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


@dataclass(frozen=True)
class Rendezvous:
    """The information about one start that a node's ranks need."""

    address: str
    port: int
    """The port of Horovod's server."""
    interface: str
    """The network interface by which this node's ranks reach the others."""
    rank_counts: tuple[int, ...]
    """The number of ranks on each node."""


class _Node(msgspec.Struct):
    """The message of a node to the first node."""

    num_ranks: int
    first: str
    """The address by which the node reaches the first one."""
    own: str


class _ServerPlace(msgspec.Struct):
    """The message of the first node to the others."""

    port: int
    rank_counts: tuple[int, ...]


def meet_first(
    start: Start,
    num_ranks_wanted: int | None,
    interfaces: Collection[str],
    start_server: Callable[[str, Sequence[int]], Server],
) -> tuple[Rendezvous, Server]:
    """Exchanges the information on the first node, which starts the server. Blocks until all nodes have sent theirs.

    `start_server` gets an address to listen on, "" for all, and the numbers of ranks by node. Raises
    `CommandError`, and `RuntimeError` if the nodes' store is gone.
    """
    others = [msgspec.json.decode(start.store.get(_key(node)), type=_Node) for node in range(1, start.num_nodes)]
    rank_counts = (start.local_size, *(node.num_ranks for node in others))
    addresses = {node.first for node in others} or {LOOPBACK}
    # If a router translates addresses, the one that the others use does not belong to this node.
    address = next(iter(addresses)) if len(addresses) == 1 and all(map(is_own, addresses)) else _ALL
    outward = own_address_towards(others[0].own) if others and address == _ALL else address
    try:
        server = start_server(address, rank_counts)
    except OSError as error:
        raise CommandError(f"Horovod's server cannot listen on {address or 'this node'}: {error.strerror}") from error
    try:
        interface = choose_interface(interfaces, outward)
        start.store.set(_SERVER, msgspec.json.encode(_ServerPlace(server.port, rank_counts)).decode())
        _check_number(rank_counts, num_ranks_wanted)
    except BaseException:
        server.close()
        raise
    return Rendezvous(outward, server.port, interface, rank_counts), server


def meet_other(start: Start, num_ranks_wanted: int | None, interfaces: Collection[str]) -> Rendezvous:
    """Exchanges the information on another node. Blocks until the first one answers. Raises as `meet_first` does."""
    first = ipv4_of(start.chief_address)
    own = own_address_towards(first)
    interface = choose_interface(interfaces, own)
    node = _Node(start.local_size, first, own)
    start.store.set(_key(start.node_rank), msgspec.json.encode(node).decode())
    server = msgspec.json.decode(start.store.get(_SERVER), type=_ServerPlace)
    _check_number(server.rank_counts, num_ranks_wanted)
    return Rendezvous(first, server.port, interface, server.rank_counts)


def choose_interface(given: Collection[str], own_address: str) -> str:
    """Chooses an interface from `given`, those that the user has named; empty for all. Raises `CommandError`."""
    interface = interface_of(own_address)
    if interface is not None and (not given or interface in given):
        return interface
    if not given:
        raise CommandError(f"no interface has the address {own_address}: name one with --network-interfaces")
    names = sorted(interfaces())
    if known := sorted(set(given).intersection(names)):
        return known[0]
    wanted = " or ".join(sorted(given))
    raise CommandError(
        f"this node has no interface {wanted}, which --network-interfaces asks for; it has {', '.join(names)}"
    )


def _check_number(rank_counts: Sequence[int], wanted: int | None) -> None:
    if wanted is not None and sum(rank_counts) != wanted:
        counts = " + ".join(map(str, rank_counts))
        raise CommandError(
            f"-np {wanted} cannot be had: the nodes have {counts} slots. Leave it out to use them all, give a number "
            "that the nodes divide, or say each host's with -H"
        )


def _key(node: int) -> str:
    return f"horovod/node/{node}"
