"""Shares a home with a group, which may then read what trials and experiments have recorded there.

What is read lies in four directories. These are marked, and whatever is made below inherits the group and the mark, as
`core_sdk._ground.ownership` does. All else in the home stays private to its owner: logins, messages, the index.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from core_sdk._ground.ownership import SHARED, make_directory, set_modes, shared_mode
from core_sdk._home.folders._home import Home

_ROOT_MODE = 0o710  # others find what they know the names of, and new files in it stay private


def share(home: Home, gid: int) -> int:
    """Lets a group read the home, and returns how many files it could not be given. Raises `OSError`."""
    make_directory(home.code, exist_ok=True)
    num_refused = sum(set_modes(path, shared_mode, gid) for path in _directories(home))
    for path, mode in ((home.record, 0o640), (home.root, _ROOT_MODE)):
        os.chown(path, -1, gid)
        path.chmod(mode)
    return num_refused


def unshare(home: Home) -> int:
    """Makes the home private again, as `share` returns."""
    home.root.chmod(0o700)
    home.record.chmod(0o600)
    return sum(set_modes(path, _private_mode) for path in _directories(home))


def closed_above(home: Home) -> Path | None:
    """Returns a directory above the home that its group may not pass through; None if there is none."""
    gid = home.root.stat().st_gid
    for path in home.root.resolve().parents:
        status = path.stat()
        if not status.st_mode & (stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH):
            return path
    return None


def _directories(home: Home) -> list[Path]:
    return [home.runs, home.experiments, home.checkpoints, home.code]


def _private_mode(mode: int) -> int:
    return stat.S_IMODE(mode & ~(SHARED | stat.S_IRWXG | stat.S_IRWXO))
