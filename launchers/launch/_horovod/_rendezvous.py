"""The exchange in which the nodes' launchers learn the address of Horovod's server."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from launch._command_line import CommandLineError
from launch._framework import Start
from launch._network import LOOPBACK, interface_of, interfaces, ipv4_of, is_own, own_address_towards

_ALL = ""
_SERVER_PORT = "horovod/server"


class StartedServer(Protocol):
    port: int

    def close(self) -> None: ...


@dataclass(frozen=True)
class HorovodRendezvous:
    """The information about one start that a node's ranks need."""

    address: str
    port: int
    """The port of Horovod's server."""
    interface: str
    """The network interface by which this node's ranks reach the others."""
    server: StartedServer | None = field(repr=False)
    """The server, on the first node."""


def meet(
    start: Start,
    rank_counts: Sequence[int],
    interfaces: Collection[str],
    start_server: Callable[[str, Sequence[int]], StartedServer],
) -> HorovodRendezvous:
    """Exchanges the addresses of the nodes. Blocks until all nodes have sent theirs. The first one starts the server.

    `start_server` gets an address to listen on, "" for all, and the numbers of ranks by node. Raises
    `CommandLineError`, and `RuntimeError` if the nodes' store is gone.
    """
    if start.node_rank > 0:
        first = ipv4_of(start.chief_address)
        own = own_address_towards(first)
        start.store.set(_key(start.node_rank), json.dumps([first, own]))
        interface = choose_interface(interfaces, own)
        return HorovodRendezvous(first, int(start.store.get(_SERVER_PORT)), interface, None)
    # Each node sends the address by which it reaches this one, and its own.
    others = [json.loads(start.store.get(_key(node))) for node in range(1, start.num_nodes)]
    addresses = {first for first, _ in others} or {LOOPBACK}
    # If a router translates addresses, the one that the others use does not belong to this node.
    address = next(iter(addresses)) if len(addresses) == 1 and all(map(is_own, addresses)) else _ALL
    outward = own_address_towards(others[0][1]) if address == _ALL else address
    interface = choose_interface(interfaces, outward)
    try:
        server = start_server(address, rank_counts)
    except OSError as error:
        raise CommandLineError(
            f"Horovod's server cannot listen on {address or 'this node'}: {error.strerror}"
        ) from error
    if others:
        start.store.set(_SERVER_PORT, str(server.port))
    return HorovodRendezvous(outward, server.port, interface, server)


def choose_interface(given: Collection[str], own_address: str) -> str:
    """Chooses an interface from `given`, those that the user has named; empty for all. Raises `CommandLineError`."""
    interface = interface_of(own_address)
    if interface is not None and (not given or interface in given):
        return interface
    if not given:
        raise CommandLineError(f"no interface has the address {own_address}: name one with --network-interfaces")
    names = sorted(interfaces())
    if known := sorted(set(given).intersection(names)):
        return known[0]
    wanted = " or ".join(sorted(given))
    raise CommandLineError(
        f"this node has no interface {wanted}, which --network-interfaces asks for; it has {', '.join(names)}"
    )


def _key(node: int) -> str:
    return f"horovod/node/{node}"
