"""Selects the files that belong to a code directory."""

from __future__ import annotations

import heapq
import math
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from core_sdk.errors import CodeDirectoryError

MAX_SIZE_BYTES = 1 << 30
"""The default limit of a code directory's size."""

IGNORE_FILES = (".detignore", ".coreignore")
"""Files in the root of the directory, in the syntax of `.gitignore`. Later patterns win."""

_BUILT_IN_PATTERNS = (
    "__pycache__/",
    "*.py[co]",
    "*$py.class",
    ".git/",
    ".hg/",
    ".venv/",
    ".vscode/",
    ".idea/",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
)

_NUM_LARGEST = 5
_WHAT_TO_DO = "Name it in .coreignore, or put the files themselves there."


@dataclass(frozen=True)
class Entry:
    """A file, a directory or a link within the code. What a link leads to outside of it is an entry in its place."""

    name: str
    """The path relative to the code's root, with "/"."""
    path: Path
    status: os.stat_result
    """The status of the file; for a link, the status of the link itself, not of its target."""
    target: str = ""
    """The target of a link, relative to the directory that holds it."""

    @property
    def is_program(self) -> bool:
        """Whether the entry may be executed. A link may be, too."""
        return not stat.S_ISDIR(self.status.st_mode) and bool(self.status.st_mode & stat.S_IXUSR)

    @property
    def size_bytes(self) -> int:
        return self.status.st_size if stat.S_ISREG(self.status.st_mode) else 0


def select(
    directory: Path | None,
    includes: Sequence[Path] = (),
    *,
    left_out: Path | None = None,
    max_size_bytes: float = MAX_SIZE_BYTES,
    most_entries: float = math.inf,
    ignore_files: Sequence[str] = IGNORE_FILES,
) -> list[Entry]:
    """Returns the entries of `directory`, and each of `includes` under its own name, sorted by name.

    The directory `left_out` is skipped wherever it lies. `ignore_files` in the root say what else is left out. Raises
    `CodeDirectoryError`.
    """
    sources = [(path, os.path.basename(os.path.abspath(path))) for path in includes]  # noqa: PTH100, PTH119
    entries: dict[str, Entry] = {}
    size_bytes = 0
    for path, name in [(directory, ""), *sources] if directory else sources:
        if name in entries:
            raise CodeDirectoryError(path, f"cannot be included: the code directory has {name!r} already")
        for entry in _entries(path, name, left_out, ignore_files):
            entries[entry.name] = entry
            size_bytes += entry.size_bytes
            if size_bytes > max_size_bytes:  # raised at once, since the directory may be a whole disk
                raise CodeDirectoryError(path, _too_large(max_size_bytes, entries.values()))
            if len(entries) > most_entries:
                raise CodeDirectoryError(
                    path, f"holds more than {most_entries:,} files. Name in .coreignore what a training does not need"
                )
    return [entries[name] for name in sorted(entries)]


def largest(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """Returns the names and the sizes in bytes of the largest files."""
    found = heapq.nlargest(_NUM_LARGEST, entries, key=lambda entry: entry.size_bytes)
    return [(entry.name, entry.size_bytes) for entry in found]


def _too_large(max_size_bytes: float, entries: Iterable[Entry]) -> str:
    files = ", ".join(f"{name!r} ({size_bytes / (1 << 20):,.1f} MiB)" for name, size_bytes in largest(entries))
    return (
        f"holds more than {max_size_bytes / (1 << 20):,.0f} MiB, among it {files}. Name in .coreignore what the trials "
        "do not need, or raise the limit with --max-code-size."
    )


def _entries(source: Path, name: str, left_out: Path | None, ignore_files: Sequence[str]) -> Iterator[Entry]:
    """Yields a file or directory as the entry `name`, and its content; with an empty name only the content."""
    root = Path(os.path.realpath(source))
    try:
        if name:
            yield Entry(name, root, root.stat())
        if root.is_dir() or not name:
            patterns = GitIgnoreSpec.from_lines([*_BUILT_IN_PATTERNS, *_ignore_lines(root, ignore_files)])
            yield from _walk(root, f"{name}/" if name else "", patterns, left_out and Path(os.path.realpath(left_out)))
    except OSError as error:
        raise CodeDirectoryError(source, f"cannot be read: {error.filename}: {error.strerror}") from error


def _ignore_lines(root: Path, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        path = root / name
        if path.is_file():
            lines = path.read_text(errors="surrogateescape").splitlines()
            try:
                GitIgnoreSpec.from_lines(lines)
            except ValueError as error:
                raise CodeDirectoryError(path, f"has a pattern that cannot be read: {error}") from error
            yield from lines


def _walk(root: Path, prefix: str, patterns: GitIgnoreSpec, left_out: Path | None) -> Iterator[Entry]:
    """Yields the entries below `root` that are not ignored. As in git, nothing in an ignored directory is found."""
    pending: list[tuple[str, Path, tuple[Path, ...]]] = [("", root, ())]
    while pending:
        parent, directory, followed = pending.pop()
        with os.scandir(directory) as found:
            for item in found:
                name, path, target = parent + item.name, Path(item.path), ""
                leads_to = Path(os.path.realpath(path))
                leads_out = item.is_symlink() and not leads_to.is_relative_to(root)
                is_directory = item.is_dir(follow_symlinks=leads_out)
                if patterns.match_file(f"{name}/" if is_directory else name):
                    continue
                if leads_out:
                    _check_followed(root, prefix + name, leads_to, (directory, *followed))
                    path = leads_to
                elif item.is_symlink():
                    target = os.path.relpath(leads_to, (root / name).parent)
                if path == left_out:
                    continue
                yield _entry(root, prefix + name, path, target)
                if is_directory:
                    pending.append((f"{name}/", path, (*followed, path) if leads_out else followed))


def _check_followed(root: Path, name: str, leads_to: Path, within: Iterable[Path]) -> None:
    """Raises `CodeDirectoryError` if a link that leads out of the code to `leads_to` cannot be replaced by that.

    `within` has the directory of the link, and those to which the links before it have led.
    """
    if not leads_to.exists():
        raise CodeDirectoryError(root, f"has a link, {name!r}, to {leads_to}, where nothing is. {_WHAT_TO_DO}")
    if any(directory.is_relative_to(leads_to) for directory in within):
        raise CodeDirectoryError(root, f"has a link, {name!r}, to {leads_to}, which holds the link. {_WHAT_TO_DO}")


def _entry(root: Path, name: str, path: Path, target: str) -> Entry:
    status = path.lstat()
    if not target and not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise CodeDirectoryError(root, f"has {name!r}, which is a socket, a pipe or a device. {_WHAT_TO_DO}")
    try:
        f"{name}{target}".encode()
    except UnicodeEncodeError as error:
        raise CodeDirectoryError(root, f"has a file whose name is not UTF-8: {name!r}. {_WHAT_TO_DO}") from error
    return Entry(name, path, status, target)
