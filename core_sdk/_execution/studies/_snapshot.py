"""Takes the code of a directory as it is now, so that a try runs that code and no other.

In a git repository the code is what git has, as it lies in the work tree, and new source files that no `.gitignore`
names; elsewhere it is the source files of the directory. It is packed into the home once, by its SHA-256, and unpacked
for each trial. What is no code, such as data, an environment or a cache, is linked into that copy. In git the copy
also becomes a commit, by an index of its own: neither the index nor the work tree nor a branch of the user's changes.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk._execution.experiments.code import IGNORE_FILES, MAX_SIZE_BYTES, Entry, PackedCode, pack_entries, select
from core_sdk._home import Home
from core_sdk._home.sources import SUFFIXES
from core_sdk.errors import CodeDirectoryError

_MOST_SOURCE_BYTES = 256 << 10
_NOT_LINKED = frozenset({".git", "__pycache__", ".ipynb_checkpoints"})
_GIT_TIMEOUT_S = 60
_WHOEVER = ("core-sdk", "core-sdk@localhost")


@dataclass(frozen=True)
class CodeSnapshot:
    """The code of a directory as it was at one moment, packed into a home."""

    root: Path
    """The root of the git repository; without git the directory itself."""
    directory: str
    """The directory below the root; empty for the root."""
    packed: PackedCode
    names: frozenset[str]
    """The files of the code, below the root."""
    is_git: bool

    def link_others(self, copy: Path, home_root: Path) -> list[str]:
        """Links into a copy what lies beside the code in the work tree. Returns the names, below the root."""
        linked = []
        for name in sorted(self._others(home_root)):
            target = copy / name
            if not os.path.lexists(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(self.root / name)
                linked.append(name)
        return linked

    def _others(self, home_root: Path) -> Iterator[str]:
        directories = {"", *(str(parent) for name in self.names for parent in Path(name).parents if str(parent) != ".")}
        home = os.path.realpath(home_root)
        for directory in directories:
            with contextlib.suppress(FileNotFoundError), os.scandir(self.root / directory) as found:
                for item in found:
                    name = f"{directory}/{item.name}" if directory else item.name
                    is_code = name in self.names or name in directories
                    is_left_out = item.name in _NOT_LINKED or item.name.endswith(".pyc")
                    if not is_code and not is_left_out and os.path.realpath(item.path) != home:
                        yield name


def take_snapshot(home: Home, directory: Path) -> CodeSnapshot:
    """Packs the code of a directory. Raises `CodeDirectoryError` or `ExperimentError`."""
    directory = directory.resolve()
    root = _git_root(directory)
    entries = _entries_elsewhere(home, directory) if root is None else _entries_in_git(home, root)
    names = frozenset(each.name for each in entries if not stat.S_ISDIR(each.status.st_mode))
    if not names:
        raise CodeDirectoryError(directory, "holds no source file that a try could run")
    where = "" if root is None else os.path.relpath(directory, root)
    return CodeSnapshot(
        root=root or directory,
        directory="" if where == "." else where,
        packed=pack_entries(home, entries),
        names=names,
        is_git=root is not None,
    )


def commit(snapshot: CodeSnapshot, copy: Path, ref: str, message: str, author: str, parent: str = "") -> str:
    """Commits a copy of the code under a ref of its own, as a child of `parent`, or else of HEAD.

    Returns the commit; empty if git fails.
    """
    if not snapshot.is_git:
        return ""
    name, email = (author or _WHOEVER[0]), _WHOEVER[1]
    with tempfile.TemporaryDirectory(prefix="core-sdk-index-") as temporary:
        variables = {
            **_variables(),
            "GIT_INDEX_FILE": f"{temporary}/index",
            "GIT_DIR": git(snapshot.root, ["rev-parse", "--absolute-git-dir"]).strip(),
            "GIT_WORK_TREE": str(copy),
            **{f"GIT_{who}_NAME": name for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": email for who in ("AUTHOR", "COMMITTER")},
        }
        try:
            head = git(copy, ["rev-parse", "--verify", "--quiet", "HEAD"], variables).strip()
            git(copy, ["read-tree", head], variables)
        except CodeDirectoryError:
            head = ""  # a repository without a commit
        try:
            known = _names(git(copy, ["ls-files", "-z"], variables))
            changed = "".join(f"{each}\0" for each in sorted(known | snapshot.names))
            git(copy, ["update-index", "--add", "--remove", "-z", "--stdin"], variables, changed)
            tree = git(copy, ["write-tree"], variables).strip()
            parents = ["-p", parent or head] if parent or head else []
            made = git(copy, ["commit-tree", tree, *parents, "-m", message], variables).strip()
            git(copy, ["update-ref", ref, made], variables)
        except CodeDirectoryError:
            return ""  # the packed code is what runs; the commit is for people
    return made


def _entries_elsewhere(home: Home, directory: Path) -> list[Entry]:
    entries = select(directory, left_out=home.root, ignore_files=(".gitignore", *IGNORE_FILES))
    return [each for each in entries if each.target or _is_source(each.name, each.status)]


def _entries_in_git(home: Home, root: Path) -> list[Entry]:
    tracked = _names(git(root, ["ls-files", "-z", "--cached"]))
    new = _names(git(root, ["ls-files", "-z", "--others", "--exclude-standard"]))
    entries = []
    size_bytes = 0
    for name in sorted(tracked | new):
        path = root / name
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # it is deleted in the work tree
            status = path.lstat()
            is_link = stat.S_ISLNK(status.st_mode)
            target = str(path.readlink()) if is_link else ""
            if path.is_relative_to(home.root) or (is_link and _leads_out(root, path, target)):
                continue
            if is_link or (stat.S_ISREG(status.st_mode) and (name in tracked or _is_source(name, status))):
                entries.append(Entry(name, path, status, target))
                size_bytes += entries[-1].size_bytes
    if size_bytes > MAX_SIZE_BYTES:
        limit = f"{MAX_SIZE_BYTES >> 20:,} MiB"
        raise CodeDirectoryError(root, f"holds more than {limit} that git has: a try copies all of it")
    return entries


def _is_source(name: str, status: os.stat_result) -> bool:
    is_small = stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_SOURCE_BYTES
    return is_small and Path(name).suffix in SUFFIXES


def _leads_out(root: Path, path: Path, target: str) -> bool:
    return Path(target).is_absolute() or not Path(os.path.normpath(path.parent / target)).is_relative_to(root)


def _git_root(directory: Path) -> Path | None:
    try:
        return Path(git(directory, ["rev-parse", "--show-toplevel"]).removesuffix("\n"))
    except (CodeDirectoryError, FileNotFoundError):
        return None


def _names(output: str) -> set[str]:
    return {name for name in output.split("\0") if name}


def _variables() -> dict[str, str]:
    from core_sdk._ground.environment import child_variables

    found = child_variables({}, {})
    # A hook of git, or a shell within one, names another repository.
    return {name: value for name, value in found.items() if not name.startswith("GIT_")}


def git(
    directory: Path, arguments: Sequence[str], variables: dict[str, str] | None = None, given: str | None = None
) -> str:
    """Returns the output of git. Raises `CodeDirectoryError`, or `FileNotFoundError` without git."""
    ended = subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env=_variables() if variables is None else variables,
        input=given if given is not None else "",
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=_GIT_TIMEOUT_S,
    )
    if ended.returncode:
        raise CodeDirectoryError(directory, f"git {arguments[0]} failed: {ended.stderr.strip() or ended.returncode}")
    return ended.stdout


def in_copy(argv: Iterable[str], root: Path, copy: Path) -> list[str]:
    """Returns a command whose absolute paths to files of the code lead into a copy of it."""
    told = []
    for word in argv:
        is_path = Path(word).is_absolute() and Path(word).is_relative_to(root)
        inside = copy / Path(word).relative_to(root) if is_path else None
        told.append(str(inside) if inside is not None and inside.exists() and not _is_linked(inside, copy) else word)
    return told


def _is_linked(path: Path, copy: Path) -> bool:
    return any(each.is_symlink() for each in (path, *path.parents) if each != copy and each.is_relative_to(copy))
