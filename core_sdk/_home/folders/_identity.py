"""Tells a home from its copies.

A home may be renamed, moved, mounted elsewhere, copied, restored and snapshotted. Its name, which `identity` holds,
goes along with every copy, and snapshots keep the inode numbers, so that the file system counts too.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """The name of a home, and the folder that has it."""

    name: str
    """Drawn at random when the home was made."""
    folder: str
    """Stands for the inode numbers of the home and of two of its directories."""
    file_system: str
    """Stands for the file system; empty for network file systems, which do not tell."""

    @classmethod
    def of(cls, name: str, directories: Sequence[Path]) -> Self:
        # A single inode may be the same on another file system.
        inodes = " ".join(str(path.stat().st_ino) for path in directories)
        return cls(name, _digest(inodes), _digest(_file_system(directories[0])))

    @classmethod
    def parse(cls, text: str) -> Self:
        name, folder, file_system, *_ = [*text.rsplit("-", 2), "", ""]
        return cls(name, folder, file_system)

    def __str__(self) -> str:
        return f"{self.name}-{self.folder}-{self.file_system}"

    def is_same(self, other: Identity) -> bool:
        """Returns whether both are one folder, seen on the machine that has it or over a network."""
        is_known = bool(self.file_system and other.file_system)
        is_same_folder = (self.name, self.folder) == (other.name, other.folder)
        return is_same_folder and (not is_known or self.file_system == other.file_system)


class Ownership(msgspec.Struct, frozen=True):
    """Decides whether what was recorded under an identity belongs to this home."""

    own: str | None
    """The identity of this home; None if it is not known."""
    adopted: Sequence[str] = ()
    """The identities that `core-sdk home adopt` has declared to be one home."""

    def covers(self, recorded: str) -> bool:
        """Returns whether it belongs to this home for sure, so that what it has stored anywhere may be deleted."""
        if self.own is None or not recorded:
            return False
        own = Identity.parse(self.own)
        return own.is_same(Identity.parse(recorded)) or (
            recorded in self.adopted and any(own.is_same(Identity.parse(each)) for each in self.adopted)
        )

    def is_elsewhere(self, recorded: str) -> bool:
        """Returns whether it was recorded in another home, or by this one before it was copied or moved."""
        return bool(self.own and recorded) and not self.covers(recorded)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8] if text else ""


def _file_system(directory: Path) -> str:
    """Returns what tells a file system, a snapshot of it and an overlay over it apart; empty if that is not known."""
    if sys.platform != "linux":
        return ""
    number = os.statvfs(directory).f_fsid
    device = directory.stat().st_dev
    # Overlays may have the number of the file system below, but each has a directory of its own for changes.
    changes = _upper_directory(device) if os.major(device) == 0 else ""
    return f"{number} {changes}" if number or changes else ""


def _upper_directory(device: int) -> str:
    """Returns where an overlay keeps its changes; empty for a mount of another kind."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return ""
    mount = re.search(rf"^\d+ \d+ {os.major(device)}:{os.minor(device)} .* - overlay .*", mounts, re.MULTILINE)
    found = mount and re.search(r"[ ,]upperdir=([^,\n]*)", mount[0])
    return found[1] if found else ""
