"""Which of the hosts is this machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from typing import Any

from launch._network import is_own
from launch._ssh._hostfile import Host

_LOOPBACK = ("localhost", "ip6-localhost", "ip6-loopback", "::1")


def is_here(host: Host) -> bool:
    """By its name, or by an address that this machine has. Another user's account counts as another machine."""
    user = host.name.rpartition("@")[0]
    if user and user != pwd.getpwuid(os.getuid()).pw_name:
        return False
    own = socket.gethostname()
    return host.address.lower() in {own.lower(), own.partition(".")[0].lower()} or any(
        is_own(address, family) for family, address in _addresses(host.address)
    )


def is_loopback(host: Host) -> bool:
    """Whether the name means the machine itself, on each machine."""
    return host.address.lower() in _LOOPBACK or host.address.startswith("127.")


def _addresses(name: str) -> list[tuple[socket.AddressFamily, Any]]:
    with contextlib.suppress(OSError, UnicodeError):  # one that only ssh's configuration knows has none here
        return [(family, address) for family, _, _, _, address in socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)]
    return []
