"""The hosts that an option or a hostfile names for a training."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from launch._command_line import UsageError
from launch._network import is_own

# Refuses a leading dash, which ssh would take for an option.
_NAME = re.compile(r"(?P<user>(?:[\w.+][\w.+-]*@)?)(?P<address>\[[\w:.%-]+\]|[\w:][\w:.%-]*)", re.ASCII)
_NUMBER = re.compile(r"slots=(\d{1,6})", re.ASCII)
_LIMIT = re.compile(r"max[_-]slots=(\d{1,6})", re.ASCII)
_PART = re.compile(r"(?P<name>(?:[^:]*@)?(?:\[.*\]|[^:]*)):(?P<slots>\d{1,6})", re.ASCII)
_LOOPBACK = ("localhost", "ip6-localhost", "ip6-loopback", "::1")


class Host(msgspec.Struct, frozen=True):
    name: str
    """The name for ssh, perhaps with a user."""
    slots: int
    devices: tuple[int, ...] = ()
    """The GPUs that the ranks may see; empty for all."""

    @property
    def address(self) -> str:
        """The name without the user."""
        return self.name.rpartition("@")[2]


class Ssh(msgspec.Struct, frozen=True):
    """The options of ssh that a launcher's options give. ssh's own configuration says the rest."""

    port: int | None = None
    identity_file: Path | None = None


class SshLaunch(msgspec.Struct, frozen=True):
    """A training on several hosts, on each of which this process starts a launcher."""

    hosts: tuple[Host, ...]
    ssh: Ssh = Ssh()
    overrides: tuple[str, ...] | None = None
    """The overrides for the hosts' launchers, without those that name the hosts; None for the same as here."""
    min_hosts: int | None = None
    """The least number of hosts with which an elastic training continues after a loss; None if it needs all."""


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Reads a hostfile. Raises `UsageError` for one that cannot be read or understood."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"the hostfile {path} does not exist") from None
    except OSError as error:
        raise UsageError(f"the hostfile {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"the hostfile {path} is no text: it takes lines such as `worker-1 slots=4`") from None
    try:
        return parse_hostfile(text)
    except UsageError as error:
        raise UsageError(f"the hostfile {path}: {error}") from None


def parse_hostfile(text: str) -> tuple[Host, ...]:
    """Parses lines of `name slots=N`, as in MPI, DeepSpeed and Horovod. Raises `UsageError`, which names the line."""
    lines = ((f"line {number}", line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), 1))
    return _distinct((place, _host_of_line(place, words)) for place, words in lines if words)


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Parses `h1:2,h2:4,[::1]:1`. A name alone has one slot, as in MPI. Raises `UsageError`, which names the part."""
    parts = [part.strip() for part in text.split(",")]
    return _distinct((repr(part), _host_of_part(part)) for part in parts if part)


def is_here(host: Host) -> bool:
    """Returns whether the host is this machine, by its name or an address.

    Another user's account counts as another machine.
    """
    user = host.name.rpartition("@")[0]
    if user and user != pwd.getpwuid(os.getuid()).pw_name:
        return False
    own = socket.gethostname()
    return host.address.lower() in {own.lower(), own.partition(".")[0].lower()} or any(
        is_own(address, family) for family, address in _addresses(host.address)
    )


def is_loopback(host: Host) -> bool:
    """Returns whether the name means the local machine on every machine."""
    return host.address.lower() in _LOOPBACK or host.address.startswith("127.")


def _host_of_line(place: str, words: list[str]) -> Host:
    name, *fields = words
    slots = _NUMBER.fullmatch(fields[0]) if fields else None
    if slots is None or not all(_LIMIT.fullmatch(field) for field in fields[1:]):
        raise UsageError(f"{place} is {' '.join(words)!r}, where `NAME slots=N` is expected, as in `worker-1 slots=4`")
    return _host(place, name, int(slots[1]))


def _host_of_part(part: str) -> Host:
    match = _PART.fullmatch(part)
    if match is None:
        if part.rpartition("@")[2].count(":") > 1 and "[" not in part:
            raise UsageError(f"{part!r}: write an IPv6 address in brackets, as in [{part}]:2 for two slots")
        return _host(repr(part), part, 1)
    return _host(repr(part), match["name"], int(match["slots"]))


def _host(place: str, name: str, slots: int) -> Host:
    match = _NAME.fullmatch(name)
    address = "" if match is None else match["address"].strip("[]")
    if match is None or (":" in address and not _is_ipv6(address)):
        raise UsageError(f"{place}: {name!r} is no name of a host")
    if slots < 1:
        raise UsageError(f"{place}: {name} has no slots; leave the host out, or give it 1 or more")
    return Host(match["user"] + address, slots)


def _is_ipv6(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 6
    except ValueError:
        return False


def _distinct(placed: Iterable[tuple[str, Host]]) -> tuple[Host, ...]:
    """Returns the hosts. Raises `UsageError` if a host is there twice, or if there are none."""
    hosts: dict[str, tuple[str, Host]] = {}
    for place, host in placed:
        first, known = hosts.setdefault(host.address.lower().rstrip("."), (place, host))
        if known is not host:
            raise UsageError(f"{place}: {host.address} was named before, in {first}; name it once, with all its slots")
    if not hosts:
        raise UsageError("no host is named: give each one with its slots, as in `worker-1 slots=4`")
    return tuple(host for _, host in hosts.values())


def _addresses(name: str) -> list[tuple[socket.AddressFamily, Any]]:
    with contextlib.suppress(OSError, UnicodeError):  # a name that only ssh's configuration knows has no address
        return [(family, address) for family, _, _, _, address in socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)]
    return []
