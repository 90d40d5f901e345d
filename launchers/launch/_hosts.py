"""Hosts that were named for a training, and on which nothing has placed a launcher yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Host:
    """Named as ssh knows it."""

    name: str
    slots: int
    devices: tuple[int, ...] = ()
    """The GPUs that the ranks may see; empty for all."""


@dataclass(frozen=True)
class Ssh:
    """How to reach the hosts, where ssh's own configuration does not say."""

    port: int | None = None
    identity_file: Path | None = None


@dataclass(frozen=True)
class Spread:
    """A training over hosts: this process is to start the launcher on each of them."""

    hosts: tuple[Host, ...]
    ssh: Ssh = Ssh()
