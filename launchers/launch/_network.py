"""The addresses, interfaces and connections by which this node reaches other nodes."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

from launch._command_line import CommandLineError

LOOPBACK = "127.0.0.1"
# For a datagram socket that only asks the kernel for its route.
_ANY_PORT = 9

# The time after which an idle connection is probed, and the silence after which it breaks.
_IDLE_S = 10
_INTERVAL_S = 5
_SILENCE_S = 30


def ipv4_of(host: str) -> str:
    """Returns an IPv4 address of the host. Raises `CommandLineError`."""
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise _no_route(host, error) from error


def is_own(address: str | tuple[Any, ...], family: socket.AddressFamily = socket.AF_INET) -> bool:
    """Returns whether this machine has the address: then packets to it also leave from it. Sends nothing.

    The form of a tuple depends on `family`.
    """
    target = address if isinstance(address, tuple) else (address, _ANY_PORT)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Not `bind`, which some machines allow for any address (net.ipv4.ip_nonlocal_bind).
            probe.connect((target[0], _ANY_PORT, *target[2:]))
            return bool(probe.getsockname()[0] == target[0])
    except OSError:
        return False


def own_address_towards(address: str) -> str:
    """Returns this node's address from which packets to `address` leave. Sends nothing. Raises `CommandLineError`."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _ANY_PORT))
            name: str = probe.getsockname()[0]
            return name
    except OSError as error:
        raise _no_route(address, error) from error


def _no_route(host: str, error: OSError) -> CommandLineError:
    return CommandLineError(
        f"there is no way from this node to {host!r} by IPv4, which the ranks need to meet: {error.strerror}. Give "
        "--master-addr's like, PET_MASTER_ADDR, as an address or a name that resolves"
    )


def interface_of(address: str) -> str | None:
    """Returns the name of the interface that has this address."""
    return next((name for name, addresses in interfaces().items() if address in addresses), None)


def enable_keepalive() -> None:
    """Makes all open connections break when the other side has not answered for half a minute.

    They are torch's connections to its stores on other nodes. Otherwise a request to a host that is cut off would wait
    for a quarter of an hour, and a connection on which an answer is due would wait forever.
    """
    for path in list(Path("/dev/fd").iterdir()):
        # Some descriptors are not sockets, and the listing's own descriptor is closed by now.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                _enable_keepalive(connection)


def _enable_keepalive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_S * 1000)


def interfaces() -> dict[str, list[str]]:
    """Returns the addresses of each interface, by its name."""
    import psutil  # a twentieth of a second, which only launchers of some frameworks need

    return {name: [entry.address for entry in entries] for name, entries in psutil.net_if_addrs().items()}
