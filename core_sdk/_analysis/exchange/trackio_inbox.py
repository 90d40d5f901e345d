"""trackio's fragments, `inbox/WRITER/N.jsonl`: what its server or its page has not put into a database yet.

trackio writes them by itself where its folder lies on a network file system.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.files import reading

NAME = "inbox"
_MAX_LINE_BYTES = 1 << 24


@dataclass
class FragmentedRun:
    """A run by its fragments. Each of `files` is named with the time of its first record of the run."""

    project: str
    run_id: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    files: list[tuple[str, Path]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields the records of metrics, one file after the other. A writer begins where another one has ended."""
        for _, file in sorted(self.files):
            yield from (record for record in _records(file, []) if _names(record) == (self.project, self.run_id))


def is_fragment(file: Path) -> bool:
    return file.suffix == ".jsonl" and file.absolute().parent.parent.name == NAME


def fragments_beside(database: Path) -> list[Path]:
    """Returns the fragments in the folder of a database, of all projects."""
    inbox = database.parent / NAME
    walk = [] if inbox.is_symlink() else os.walk(inbox)
    return [file for parent, _, names in walk for name in names if is_fragment(file := Path(parent, name))]


def fragmented_runs(files: Iterable[Path]) -> list[FragmentedRun]:
    """Returns the runs of which these fragments have metrics, in the order of the files."""
    runs: dict[tuple[str, str], FragmentedRun] = {}
    for file in sorted(files):
        losses: list[str] = []
        here: dict[tuple[str, str], FragmentedRun] = {}
        for record in _records(file, losses):
            names = _names(record)
            if names not in here:
                here[names] = runs.setdefault(names, FragmentedRun(*names, name=str(record.get("run"))))
                here[names].files.append((str(record.get("timestamp")), file))
            if isinstance(config := record.get("config"), dict):
                here[names].config = config
        for run in here.values():
            run.losses += losses
    return list(runs.values())


def _names(record: dict[str, Any]) -> tuple[str, str]:
    """Returns the name of the project's database, and what identifies the run in it."""
    project = "".join(char for char in str(record.get("project")) if char.isalnum() or char in "-_")
    return project or "default", str(record.get("run_id") or record.get("run"))


def _records(file: Path, losses: list[str]) -> Iterator[dict[str, Any]]:
    num_damaged = 0
    try:
        with reading(file) as opened:
            while line := opened.readline(_MAX_LINE_BYTES):
                if len(line) == _MAX_LINE_BYTES:
                    raise OSError(errno.EFBIG, "a line is longer than any record")
                try:
                    record = msgspec.json.decode(line)
                except (ValueError, RecursionError):
                    num_damaged += bool(line.strip())
                    continue
                if isinstance(record, dict) and record.get("kind") == "metric":
                    yield record
    except OSError as error:
        losses.append(f"{file.name} was not read to its end: {error.strerror}")
    if num_damaged:
        losses.append(f"{num_damaged} lines of {file.name} are damaged, and were left out")
