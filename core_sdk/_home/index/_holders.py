"""Finds the process that holds a lock of the index. A waiting process names it, and waits for no suspended one."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

logger = logging.getLogger("core_sdk.tracking")

PATIENCE_S = 2.0
"""The time for which a process waits for another one before it says so."""
_MAX_COMMAND_CHARS = 100
# A lock by the kernel: "3: FLOCK  ADVISORY  WRITE 4711 08:01:123 0 EOF". A line with "->" is of one that waits.
_LOCK = re.compile(r"^\d+: (?:FLOCK|POSIX|OFDLCK) +\S+ +\S+ +(\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) ", re.MULTILINE)


class SuspendedError(Exception):
    """A process that holds a lock of the index is suspended."""


class Holder(msgspec.Struct, frozen=True):
    pid: int
    command: str
    is_suspended: bool

    def __str__(self) -> str:
        return f"process {self.pid} (`{self.command}`)"


class Waiting:
    """The wait for locks of some files. It says once for whom it waits."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = list(paths)
        self._told: set[int] = set()

    def go_on(self) -> None:
        """Says who holds a lock, after a wait in vain. Raises `SuspendedError` if that process is suspended."""
        holders = list(_holders(self._paths))
        for holder in holders:
            if holder.is_suspended:
                raise SuspendedError(f"{holder}, which is suspended, holds a lock of it")
        for pid, who in [(holder.pid, str(holder)) for holder in holders] or [(0, "a process of another machine")]:
            if pid not in self._told:
                self._told.add(pid)
                logger.warning("%s reads the records into the index; waiting for it", who)


def _holders(paths: Iterable[Path]) -> Iterator[Holder]:
    """Yields the other processes of this machine that hold a lock on one of the files. Only Linux tells them."""
    import psutil  # slow to import, and seldom needed

    inodes = {path.stat().st_ino for path in paths if path.exists()}
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return
    for pid in {int(pid) for pid, inode in _LOCK.findall(locks) if int(inode) in inodes} - {os.getpid()}:
        try:
            process = psutil.Process(pid)
            command = shlex.join(process.cmdline())
            is_suspended = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.Error:  # it has ended
            continue
        yield Holder(pid, command[:_MAX_COMMAND_CHARS], is_suspended)
