"""The sources of a variation: kept in the trial's folder when it begins, and compared with its parent's."""

from __future__ import annotations

import difflib
import tarfile
from collections.abc import Mapping
from pathlib import Path

from core_sdk._execution.experiments.code import select
from core_sdk._home.folders import TrialFolder
from core_sdk.errors import CodeDirectoryError

_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".toml", ".json", ".sh", ".cfg", ".ini", ".txt"})
_MOST_FILE_BYTES = 256 << 10
_MOST_BYTES = 2 << 20


def keep_sources(folder: TrialFolder, directory: Path) -> str:
    """Keeps the text files of the directory of which a program is made; returns why they are not kept, or nothing.

    `.gitignore` and `.detignore` are obeyed as for an experiment's code. Larger files than 256 KiB are left out.
    """
    try:
        entries = select(directory, left_out=folder.home_root)
    except CodeDirectoryError as error:
        return f"its sources are not kept: {error}"
    kept = [one for one in entries if one.path.suffix in _SUFFIXES and 0 < one.size_bytes <= _MOST_FILE_BYTES]
    if sum(one.size_bytes for one in kept) > _MOST_BYTES:
        return f"its sources are not kept: the sources in {directory} have more than {_MOST_BYTES >> 20} MiB"
    try:
        with tarfile.open(folder.sources_path, "w:gz") as archive:
            for one in kept:
                archive.add(one.path, one.name, recursive=False)
    except OSError as error:
        folder.sources_path.unlink(missing_ok=True)
        return f"its sources are not kept: {error}"
    return ""


def read_sources(folder: TrialFolder) -> dict[str, list[str]] | None:
    """Returns the lines of each file that was kept; None if none were, or if they cannot be read."""
    try:
        with tarfile.open(folder.sources_path, "r:gz") as archive:
            files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
            return {name: file.read().decode(errors="replace").splitlines() for name, file in files.items() if file}
    except (OSError, EOFError, tarfile.TarError):
        return None


def changes(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> list[str]:
    """Returns the lines of a unified diff without context."""
    lines: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        lines += difflib.unified_diff(before.get(name, []), after.get(name, []), name, name, lineterm="", n=0)
    return [line for line in lines if not line.startswith("--- ")]
