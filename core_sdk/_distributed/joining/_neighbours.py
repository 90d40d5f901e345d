"""The rendezvous of ranks on one node that have not been told where to meet."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

from core_sdk._distributed.joining._rendezvous import ChiefAddress, DirectoryRendezvous, Rendezvous
from core_sdk.errors import ContradictoryRanksError

# The time that a parent may need to start all its ranks, one after the other.
_ALONE_AFTER_S = 1.0
_INTERVAL_S = 0.5


class NeighbourRendezvous(Rendezvous):
    """A rendezvous by the id of the parent process, or by the home, the number and the size of the group.

    Two trainings may have the same home, number and size. So ranks use these only if their parent has started fewer
    similar processes than the node has ranks. A similar process runs the same Python in the same directory. If the
    parent has also started unrelated processes like these, the ranks may look for each other by their parent only.
    """

    def __init__(self, home: Path, number: int, local_size: int) -> None:
        """`number` distinguishes groups of one parent, and groups of one home and size."""
        by_parent = _directory(f"{os.getppid()}-{_parent_start()}-{number}")
        by_name = directory_of_name(home, number, local_size)
        self.where = f"the directories {by_parent} and {by_name}"
        self._by_parent = DirectoryRendezvous(by_parent, is_ours=True)
        self._by_name = DirectoryRendezvous(by_name, is_ours=True)
        self._local_size = local_size
        self._looks_further_at = time.monotonic() + _ALONE_AFTER_S
        self._address: ChiefAddress | None = None

    def publish(self, address: ChiefAddress) -> None:
        self._by_parent.publish(address)
        self._address = address

    def insist(self) -> None:
        if self._address is None or not self._is_alone():
            return
        # If another training with the same home, number and size is just forming, this one tries again later.
        with contextlib.suppress(ContradictoryRanksError):
            self._by_name.publish(self._address)
            self._address = None

    def look(self) -> ChiefAddress | None:
        return self._by_parent.look() or (self._by_name.look() if self._is_alone() else None)

    def withdraw(self) -> None:
        self._by_parent.withdraw()
        self._by_name.withdraw()

    def _is_alone(self) -> bool:
        """Returns whether the other ranks have other parents.

        Finding out is slow, so it is False between two attempts.
        """
        if time.monotonic() < self._looks_further_at:
            return False
        self._looks_further_at = time.monotonic() + _INTERVAL_S
        return num_siblings() < self._local_size


def directory_of_name(home: Path, number: int, local_size: int) -> Path:
    common = f"{home}\0{number}\0{local_size}"
    return _directory(hashlib.sha256(common.encode(errors="surrogateescape")).hexdigest()[:32])


def num_siblings() -> int:
    """Returns how many processes our parent has started with this Python in this directory, including this one."""
    import psutil  # slow to import

    parent = os.getppid()
    if parent <= 1:  # init adopts processes whose parent has ended
        return 1
    num_alike = 0
    with contextlib.suppress(psutil.Error, OSError):
        own = psutil.Process()
        for child in psutil.Process(parent).children():
            with contextlib.suppress(psutil.Error, OSError):  # the process has ended
                num_alike += child.exe() == own.exe() and child.cwd() == own.cwd()
    return num_alike


def _parent_start() -> str:
    """Returns the start time of the parent process, in clock ticks since boot. Its pid alone may be used again."""
    try:
        return Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "0"


def _directory(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"core-sdk-{os.geteuid()}-{name}"
