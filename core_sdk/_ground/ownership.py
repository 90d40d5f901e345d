"""Gives new files to the owner of their directory, and lets its group read them where the directory is shared."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

_ROOT = 0
SHARED = stat.S_ISGID | stat.S_ISVTX | stat.S_IRGRP | stat.S_IXGRP
"""The mode of a directory whose group may read all that is made in it. A mere setgid directory is no such wish."""


def give_to_owner_of(directory: Path, path: Path, descriptor: int) -> None:
    """Makes the open file or directory at `path`, which was made in `directory`, one of its owner and its readers.

    What root has made gets the owner and the group of `directory`; other users may not give files away. In a directory
    that is shared, its group may read it.
    """
    with contextlib.suppress(OSError):  # a container or a file server does not permit it, or the file is gone
        owner, made = directory.stat(), os.fstat(descriptor)
        is_of_root = made.st_uid == _ROOT == os.geteuid() and owner.st_uid != _ROOT
        # What a link leads to, or has a second name elsewhere, may be anybody's.
        if is_of_root and os.path.samestat(path.lstat(), made) and (stat.S_ISDIR(made.st_mode) or made.st_nlink == 1):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        if owner.st_mode & SHARED == SHARED:
            os.fchmod(descriptor, shared_mode(made.st_mode))


def shared_mode(mode: int) -> int:
    """Returns the mode of a file or directory that its group may read, and nobody but its owner may change."""
    readable = SHARED if stat.S_ISDIR(mode) else stat.S_IRGRP
    return stat.S_IMODE((mode | readable) & ~(stat.S_IWGRP | stat.S_IWOTH))


def share_as_parent(directory: Path) -> None:
    """Lets the group read all of a directory that came in one piece, if its parent is shared."""
    if directory.parent.stat().st_mode & SHARED == SHARED:
        set_modes(directory, shared_mode, directory.parent.stat().st_gid)


def set_modes(directory: Path, mode_of: Callable[[int], int], gid: int = -1) -> int:
    """Sets the modes, and the group, of all regular files and directories in a tree. Returns how many it could not."""
    num_refused = 0
    for parent, _, names in os.walk(directory):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            try:
                mode = path.lstat().st_mode
                if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                    os.chown(path, -1, gid, follow_symlinks=False)
                    path.chmod(mode_of(mode))  # at last, since a change of the group clears bits
            except FileNotFoundError:
                pass
            except OSError:
                num_refused += 1
    return num_refused


def is_own(folder: Path) -> bool:
    """Returns whether the user of this process owns the folder and may write there."""
    return folder.stat().st_uid == os.geteuid() and os.access(folder, os.W_OK | os.X_OK)


def describe_foreign_owner(folder: Path) -> str:
    """Says what it means that a folder belongs to another user than this process; empty if it is the same."""
    owner, own = folder.stat().st_uid, os.geteuid()
    if owner == own:
        return ""
    if own == _ROOT:
        return f"belongs to {_user(owner)}, who is given what this process, which is root's, writes there"
    return f"belongs to {_user(owner)}, who may not read what this process, which is {_user(own)}'s, writes there"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def make_directory(path: Path, *, mode: int = 0o700, parents: bool = False, exist_ok: bool = False) -> None:
    """Makes a directory, and gives it to the owner and the readers of its parent, which exists unless `parents`."""
    if parents and not path.parent.exists():
        make_directory(path.parent, mode=mode, parents=True, exist_ok=True)
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        give_to_owner_of(path.parent, path, descriptor)
    finally:
        os.close(descriptor)
