"""The names of checkpoint storages in the records of a home.

A storage inside the home is `home:` and its path relative to the home, so that a home can be moved and copied; others
are named by their URL. Records of older versions have the URL of each, with the path that the home then had.

A home may delete only what it owns: the files inside it, and those outside it that an attempt of this very home has
stored. A copy of a home has the same records and names the same checkpoints outside, but has another identity. What is
mounted into the home is outside: a snapshot or a container may have a copy of the home with the same files in it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote_to_bytes, urlsplit

from core_sdk._ground.environment import path_at_home, path_here
from core_sdk._ground.files import file_url
from core_sdk._ground.records import MANIFEST_NAME
from core_sdk._home.folders import Home

_INSIDE = "home:"


def storage_name(home: Home, url: str) -> str:
    """Returns the name that the home's records use for the storage at `url`."""
    inside = path_inside(home, url)
    return url if inside is None else _INSIDE + quote(bytes(inside))


def path_inside(home: Home, url: str) -> Path | None:
    """Returns the path, relative to the home, of a storage that the home's records name in this way; else None."""
    root, path = home.root.absolute(), _path(url)
    return None if path is None or not path.is_relative_to(root) else path.relative_to(root)


def storage_url(home: Home, name: str, storage_id: str) -> str:
    """Returns the URL of the storage that a record of the home names for this checkpoint."""
    if name.startswith(_INSIDE):
        inside = PurePosixPath(os.fsdecode(unquote_to_bytes(name.removeprefix(_INSIDE))))
        is_safe = not inside.is_absolute() and ".." not in inside.parts
        return _url(home.root / inside) if is_safe else name
    # A home that was moved since, or a copy, has this very checkpoint itself.
    if _path(name) is not None and (home.checkpoints / storage_id / MANIFEST_NAME).exists():
        return _url(home.checkpoints)
    return name


def is_inside(home: Home, url: str) -> bool:
    """Returns whether the storage lies in the home after all links are followed, and on the home's own file system."""
    path = _path(url)
    if path is None or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(home.root)):
        return False
    with contextlib.suppress(OSError):  # what is not there is no file of another home
        return path.stat().st_dev == home.root.stat().st_dev
    return True


def _path(url: str) -> Path | None:
    parts = urlsplit(url)
    return path_here(Path(os.fsdecode(unquote_to_bytes(parts.path)))) if parts.scheme == "file" else None


def _url(path: Path) -> str:
    return file_url(path_at_home(path.absolute()))
