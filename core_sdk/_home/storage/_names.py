"""The rules for storage ids, file names and patterns of file names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from core_sdk._ground.records import MANIFEST_NAME
from core_sdk.errors import UnsafePathError

METADATA_NAME = "metadata.json"
RESERVED_NAMES = (MANIFEST_NAME, METADATA_NAME)

_MAX_ID_BYTES = 255
# No file system keeps a file with a longer name.
_MAX_NAME_CHARS = 4_000


def check_storage_id(storage_id: object) -> str:
    """Returns `storage_id` if it is one plain path component. Else raises `UnsafePathError` or `TypeError`."""
    if not isinstance(storage_id, str):
        hint = "; `info.latest_checkpoint` is None in a training that begins" if storage_id is None else ""
        raise TypeError(f"a storage id is a string, not {type(storage_id).__name__}{hint}")
    if problem := _problem_of_component(storage_id):
        raise UnsafePathError("the storage id", storage_id, problem)
    if storage_id.startswith(".") or "\\" in storage_id:
        raise UnsafePathError("the storage id", storage_id, "begins with a dot or contains a separator")
    return storage_id


def check_file_name(name: str) -> str:
    """Returns `name` if it is a relative path that stays inside, and valid UTF-8. Else raises `UnsafePathError`."""
    if len(name) > _MAX_NAME_CHARS:
        raise UnsafePathError("the file name", f"{name[:100]}…", f"is longer than {_MAX_NAME_CHARS:,} characters")
    for component in name.removesuffix("/").split("/"):
        if problem := _problem_of_component(component):
            raise UnsafePathError("the file name", name, problem)
    return name


def linked_directory(name: str, target: str) -> str:
    """Returns the path, relative to the checkpoint, to which a link leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def parents(name: str) -> Iterator[str]:
    """Returns the directories on a relative path, the outermost first: "a" and "a/b" for "a/b/c"."""
    end = name.find("/")
    while end >= 0:
        yield name[:end]
        end = name.find("/", end + 1)


def _problem_of_component(component: str) -> str | None:
    if not component:
        return "is empty, or has an empty part"
    if component in (".", ".."):
        return "points to another directory"
    if "/" in component:
        return "contains a separator"
    if "\0" in component:
        return "contains a NUL"
    try:
        num_bytes = len(component.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    return f"is longer than {_MAX_ID_BYTES} bytes" if num_bytes > _MAX_ID_BYTES else None


def matching(names: Iterable[str], globs: Sequence[str]) -> set[str]:
    """Returns the names that any of `globs` matches, and everything inside a matched directory.

    As in `glob.glob(recursive=True)`: "**" stands for any number of directories, other wildcards stay within one, and
    none stands for a leading dot. Raises `UnsafePathError` for a pattern that points outside.
    """
    names = list(names)
    patterns = [_split_glob(glob) for glob in globs]
    matched = {name for name in names if any(_matches(name.rstrip("/").split("/"), pattern) for pattern in patterns)}
    directories = tuple(name for name in matched if name.endswith("/"))
    return matched | {name for name in names if name.startswith(directories)}


def _split_glob(glob: str) -> list[str]:
    parts = glob.rstrip("/").split("/")
    if ".." in parts or "" in parts:
        raise UnsafePathError("the pattern", glob, "is empty or points outside the checkpoint")
    return parts


def _matches(parts: list[str], pattern: list[str]) -> bool:
    if not pattern or not parts:
        return not parts and all(wildcard == "**" for wildcard in pattern)
    is_hidden = parts[0].startswith(".")
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or (not is_hidden and _matches(parts[1:], pattern))
    if is_hidden and not pattern[0].startswith("."):
        return False
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
