"""Gives the code of a try back: into a new directory, into the work tree, or to a branch of git."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from core_sdk._execution.experiments.code import unpack
from core_sdk._execution.studies._snapshot import git, take_snapshot
from core_sdk._ground.records import CodeRecord
from core_sdk._home import Home
from core_sdk.errors import CodeDirectoryError


def check_out(home: Home, code: CodeRecord, directory: Path) -> None:
    """Unpacks the code into a new directory. Raises `CodeDamagedError`, or `FileExistsError`."""
    unpack(home, code.sha256, directory)


def restore(home: Home, directory: Path, code: CodeRecord, kept: Collection[str]) -> list[str]:
    """Gives the work tree of a directory the code of a try. Returns the names of the files that have changed.

    `kept` has the SHA-256 of the code of every try. If the code that is there now belongs to none of them, nothing is
    changed, and `CodeDirectoryError` is raised. Raises `CodeDamagedError`, too.
    """
    now = take_snapshot(home, directory)
    if now.packed.sha256 not in kept:
        raise CodeDirectoryError(
            directory, "has changes that no try has kept: try them, or take them back, before the code is replaced"
        )
    changed = []
    with tempfile.TemporaryDirectory(prefix="core-sdk-code-") as temporary:
        copy = Path(temporary) / "code"
        unpack(home, code.sha256, copy)
        names = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_symlink() or not path.is_dir()}
        for name in sorted(now.names - names):
            (now.root / name).unlink(missing_ok=True)
            changed.append(name)
        for name in sorted(names):
            if not _is_same(copy / name, now.root / name):
                (now.root / name).parent.mkdir(parents=True, exist_ok=True)
                if (now.root / name).is_symlink():
                    (now.root / name).unlink()
                shutil.copy2(copy / name, now.root / name, follow_symlinks=False)
                changed.append(name)
    return changed


def move_branch(directory: Path, branch: str, commit: str) -> None:
    """Moves a branch on to a commit that descends from it, or makes it. Raises `CodeDirectoryError`."""
    if git(directory, ["branch", "--show-current"]).strip() == branch:
        raise CodeDirectoryError(
            directory,
            f"has the branch {branch} checked out: `git merge --ff-only {commit[:12]}` moves it with its files",
        )
    git(directory, ["check-ref-format", "--branch", branch])
    known = git(directory, ["for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}"]).strip()
    if known:
        base = git(directory, ["merge-base", known, commit]).strip()
        if base != known:
            raise CodeDirectoryError(directory, f"has a branch {branch} with commits that are not in {commit[:12]}")
    git(directory, ["update-ref", f"refs/heads/{branch}", commit, known])


def _is_same(path: Path, other: Path) -> bool:
    if path.is_symlink() or other.is_symlink():
        return path.is_symlink() and other.is_symlink() and path.readlink() == other.readlink()
    return other.is_file() and path.read_bytes() == other.read_bytes()
