"""By which of this node's addresses and interfaces other nodes are reached."""

from __future__ import annotations

import socket
from typing import Any

LOOPBACK = "127.0.0.1"


def ipv4_of(host: str) -> str:
    """Raises `OSError`."""
    return socket.gethostbyname(host)


def is_own(address: str | tuple[Any, ...], family: socket.AddressFamily = socket.AF_INET) -> bool:
    """Whether this machine has the address: only such can be bound to. A tuple is what `family` calls an address."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0) if isinstance(address, str) else address)
    except OSError:
        return False
    return True


def own_address_towards(address: str) -> str:
    """From which address what is sent there leaves. Sends nothing. Raises `OSError` if there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # any port: this only asks the kernel for its route
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
