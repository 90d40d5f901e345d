"""By which of this node's addresses and interfaces other nodes are reached."""

from __future__ import annotations

import socket
from typing import Any

LOOPBACK = "127.0.0.1"
# Of a datagram socket that only asks the kernel for its route.
_ANY_PORT = 9


def ipv4_of(host: str) -> str:
    """Raises `OSError`."""
    return socket.gethostbyname(host)


def is_own(address: str | tuple[Any, ...], family: socket.AddressFamily = socket.AF_INET) -> bool:
    """Whether this machine has the address: then what is sent there comes from there. Sends nothing.

    A tuple is what `family` calls an address.
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
    """From which address what is sent there leaves. Sends nothing. Raises `OSError` if there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, _ANY_PORT))
        name: str = probe.getsockname()[0]
        return name


def interface_of(address: str) -> str | None:
    """Its name, of the interface that has this address."""
    for name, addresses in _interfaces().items():
        if address in addresses:
            return name
    return None


def interface_names() -> list[str]:
    return sorted(_interfaces())


def _interfaces() -> dict[str, list[str]]:
    import psutil  # a twentieth of a second, which only launchers of some frameworks need

    return {name: [entry.address for entry in entries] for name, entries in psutil.net_if_addrs().items()}
