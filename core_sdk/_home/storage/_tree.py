"""The files of a directory, found without following a link out of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from core_sdk._ground.files import reading
from core_sdk._home.storage._names import RESERVED_NAMES, check_file_name
from core_sdk._home.storage._no_follow import is_at, new_file, opened_parent, remove
from core_sdk._home.storage._storage import Selector
from core_sdk.errors import UnsafePathError

_CHUNK_BYTES = 1 << 20


class SourceFile(msgspec.Struct, frozen=True):
    """A regular file of the directory. For a symbolic link, the file of the directory to which it leads."""

    path: Path
    size_bytes: int
    is_link: bool
    is_shared: bool
    """Whether it has other names (hard links), through which it may be changed later."""


class Tree(msgspec.Struct, frozen=True):
    files: dict[str, SourceFile]
    directories: list[str]
    links: dict[str, str]
    """The links to directories of the tree, with their targets relative to their own directories."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    def check_reserved(self) -> None:
        """Raises `ValueError` for a file that would be overwritten by ours."""
        for name in RESERVED_NAMES:
            if name in self.files or name in self.links or f"{name}/" in self.directories:
                raise ValueError(
                    f"a checkpoint cannot hold a file {name!r}: the name is Core SDK's own. Rename the file."
                )

    def without_reserved(self) -> Tree:
        """Returns the tree without metadata and manifest if it has both, as a downloaded checkpoint does."""
        if not all(name in self.files for name in RESERVED_NAMES):
            return self
        files = {name: file for name, file in self.files.items() if name not in RESERVED_NAMES}
        return Tree(files, self.directories, self.links)

    def select(self, selector: Selector | None) -> Tree:
        if selector is None:
            return self
        return Tree(
            {name: file for name, file in self.files.items() if selector(name)},
            [name for name in self.directories if selector(name)],
            {name: target for name, target in self.links.items() if selector(name)},
        )

    def copy_to(self, target: Path) -> None:
        for name in self.directories:
            (target / name).mkdir(parents=True, exist_ok=True)
        for name, file in self.files.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.path, target / name)
        for name, linked in self.links.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).symlink_to(linked)

    def replace_links(self, directory: int) -> None:
        """Replaces each link to a file, symbolic or hard, by a copy, and each to a directory by a relative one."""
        for name, target in self.links.items():
            with opened_parent(directory, name) as (parent, last):
                os.unlink(last, dir_fd=parent)
                os.symlink(target, last, dir_fd=parent)
        for name, file in self.files.items():
            if file.is_link or file.is_shared:
                with reading(file.path) as content, opened_parent(directory, name) as (parent, last):
                    os.unlink(last, dir_fd=parent)
                    with new_file(last, parent) as copy:
                        shutil.copyfileobj(content, copy, _CHUNK_BYTES)


def source_tree(source: Path, selector: Selector | None) -> Tree:
    """Returns the files of a directory that are to be stored. Raises `ValueError`, `UnsafePathError`."""
    tree = scan(source).without_reserved()
    tree.check_reserved()
    return tree.select(selector)


def staged_tree(root: Path, directory: int) -> Tree:
    """Returns the files that a script has written into the directory `root`.

    Links to files are replaced by copies; metadata and manifest are removed if both are there. `directory` is the
    descriptor of `root`. Raises `ValueError` for a reserved name, and `UnsafePathError`, also if `root` is now another
    directory, since that may be an earlier checkpoint.
    """
    if not is_at(directory, root):
        raise UnsafePathError("the checkpoint's directory", str(root), "was replaced by something else")
    tree = scan(root).without_reserved()
    tree.check_reserved()
    tree.replace_links(directory)
    # Metadata and manifest may be hard links to the files of a checkpoint that the script has copied.
    remove(directory, RESERVED_NAMES)
    return tree


def scan(root: Path) -> Tree:
    """Lists all files and directories under `root`, sorted by name.

    Raises `UnsafePathError` for a device, a socket, a pipe, a name that is not UTF-8, and a link that leads outside.
    Raises `FileNotFoundError` or `NotADirectoryError` for `root` itself.
    """
    real_root = Path(os.path.realpath(root, strict=True))
    files = {}
    directories = []
    links = {}
    for name, entry in sorted(walk(real_root), key=lambda found: found[0]):
        check_file_name(name)
        if name.endswith("/"):
            directories.append(name)
        elif entry.is_symlink() and Path(entry.path).is_dir():
            target = _inside(real_root, name, Path(entry.path))
            if (real_root / name).is_relative_to(target):
                raise UnsafePathError("the file name", name, "is a symbolic link to a directory in which it lies")
            links[name] = os.path.relpath(target, (real_root / name).parent)
        else:
            files[name] = _source_file(real_root, name, entry)
    return Tree(files, directories, links)


def walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Names relative to `root`, a directory's ending with "/". Links are not followed."""
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    name += "/"
                    pending.append(name)
                yield name, entry


def file_sizes(root: Path) -> list[int]:
    """Returns the sizes of the files below `root`, in bytes. Links are not followed."""
    return [entry.stat(follow_symlinks=False).st_size for name, entry in walk(root) if not name.endswith("/")]


def _source_file(real_root: Path, name: str, entry: os.DirEntry[str]) -> SourceFile:
    path = Path(entry.path)
    if entry.is_symlink():
        path = _inside(real_root, name, path)
    if not path.is_file():
        raise UnsafePathError("the file name", name, "is not a regular file; a checkpoint cannot keep one")
    status = path.stat()
    return SourceFile(path, status.st_size, entry.is_symlink(), status.st_nlink > 1)


def _inside(real_root: Path, name: str, link: Path) -> Path:
    try:
        target = Path(os.path.realpath(link, strict=True))
    except OSError as error:
        raise UnsafePathError("the file name", name, "is a symbolic link that leads nowhere") from error
    if not target.is_relative_to(real_root):
        problem = f"is a symbolic link to {target}, outside the checkpoint; copy the file into it instead"
        raise UnsafePathError("the file name", name, problem)
    return target
