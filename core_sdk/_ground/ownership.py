"""Gives new files to the owner of their directory: what root writes into a user's folder is the user's."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path

_ROOT = 0


def give_to_owner_of(directory: Path, path: Path, descriptor: int) -> None:
    """Gives the open file or directory at `path`, which root has made, the owner and the group of `directory`.

    Does nothing for other users, who may not give files away, and in a directory of root's.
    """
    if os.geteuid() != _ROOT:
        return
    with contextlib.suppress(OSError):  # a container or a file server does not permit it, or the file is gone
        owner, made = directory.stat(), os.fstat(descriptor)
        # What a link leads to, or has a second name elsewhere, may be anybody's.
        is_here = os.path.samestat(path.lstat(), made) and (stat.S_ISDIR(made.st_mode) or made.st_nlink == 1)
        if owner.st_uid != _ROOT and made.st_uid == _ROOT and is_here:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


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


def make_directory(path: Path, *, mode: int = 0o700, exist_ok: bool = False) -> None:
    """Makes a directory whose parent exists, and gives it to the owner of its parent."""
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
        return
    if os.geteuid() == _ROOT:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            give_to_owner_of(path.parent, path, descriptor)
        finally:
            os.close(descriptor)
