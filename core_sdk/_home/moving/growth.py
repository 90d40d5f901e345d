"""Finds what the folder of a trial has that an earlier copy of it has not: a copy that was made during a training.

Each journal has one writer, which only appends. So of two copies the longer one has all that the other has, unless both
homes have begun an attempt of one number, or a writer of one name: what they then tell differs, and nobody can join it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core_sdk._ground.files import NotRegularError, fingerprint, fsync_directory, fsync_tree, read_regular
from core_sdk._ground.records import (
    WRITER_NAME,
    CheckpointCondemned,
    CheckpointDeleted,
    CheckpointPruned,
    Record,
    TrialDescribed,
)
from core_sdk._home.folders import TrialFolder
from core_sdk._home.journal import decode_line
from core_sdk.errors import RecordDamagedError

# These belong to running processes, or are written again.
NOT_COPIED = ("*.alive", "*.supervised", "*.stop", "*.lock", "*.callbacks", "*.tmp", "received.json")
WRITTEN_ANEW = ("*.run.json", "trial.json", "command.json")

_OF_WRITER = re.compile(rf"[1-9][0-9]*\.writer\.({WRITER_NAME})\.journal")
_OF_ATTEMPT = re.compile(r"(?:node[0-9]+/)?([1-9][0-9]*)\..+")


@dataclass
class Growth:
    """The part of a trial there that is not here."""

    names: list[str] = field(default_factory=list)
    """Files that are missing here, or have grown, relative to the trial's folder."""
    changes: bytes = b""
    """Lines of `changes.journal` that are not here."""
    is_ahead: bool = False
    """Whether the trial's own program went on there, and not here."""
    left: list[str] = field(default_factory=list)
    """What cannot be joined with what is here, each with the reason."""

    def __bool__(self) -> bool:
        return bool(self.names or self.changes or self.is_ahead)


def find_growth(there: TrialFolder, here: TrialFolder, present: Collection[str]) -> Growth:
    """Compares the folders of a trial in two homes. `present` are the checkpoints whose files are here.

    Raises `OSError` for files that cannot be read, and `RecordDamagedError` for journals that are none.
    """
    growth, attempts, begun = Growth(), there.attempts(), {*here.attempts()}
    other = next((n for n in attempts if _differ(there.journal_path(n), here.journal_path(n))), None)
    if other is not None:  # this one and those after it are another continuation
        attempts = attempts[: attempts.index(other)]
        growth.left.append(
            f"trial {there.trial_id}: attempt {other} began there after it was taken, and another attempt {other} of "
            f"trial {here.trial_id} here. `core-sdk trial delete {here.trial_id}`, and the next merge takes what is "
            "there instead"
        )
    is_untouched = other is None and begun <= {*attempts}
    grown = {n for n in attempts if n not in begun or _size(there.journal_path(n)) > _size(here.journal_path(n))}
    growth.is_ahead = is_untouched and bool(grown)
    for name in _files(there.path):
        match = _OF_ATTEMPT.fullmatch(name)
        attempt = 0 if match is None else int(match[1])
        if attempt not in (attempts if attempt or not is_untouched else (0,)) and not name.startswith("media/"):
            continue
        theirs, ours = there.path / name, here.path / name
        is_journal, is_other = name.endswith(".journal"), _differ(theirs, ours)
        if is_journal and is_other:
            growth.left.append(f"trial {there.trial_id}: {_told_in_both(name, here)}")
            continue
        is_longer = not is_other and _size(theirs) > _size(ours)
        if is_longer or (not is_journal and (attempt in grown if attempt else growth.is_ahead)):
            growth.names.append(name)
    # Journals come last: they tell the next merge what is still missing if this one is killed.
    growth.names.sort(key=lambda name: name.endswith(".journal"))
    growth.changes = _missing_changes(there, here, present, growth.left)
    return growth


def writer_of(name: str) -> str | None:
    """Returns the writer who keeps this file of a trial; None for a file of anybody else. Pure."""
    match = _OF_WRITER.fullmatch(name)
    return None if match is None else match[1]


def move_into(made: Path, names: Sequence[str], folder: Path) -> None:
    """Moves files, in this order, into the folder of a trial, where each takes the place of the one that is there."""
    fsync_tree(made)
    for name in names:
        target = folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (made / name).replace(target)
    for directory in {(folder / name).parent for name in names}:
        fsync_directory(directory)


def _told_in_both(name: str, here: TrialFolder) -> str:
    if (writer := writer_of(name)) is None:
        return f"{name} differs from that of trial {here.trial_id} here"
    return (
        f"writer {writer} has reported there, and about trial {here.trial_id} here, too. Give writers of two homes "
        "different names"
    )


def _files(folder: Path) -> list[str]:
    """Returns the regular files below a trial's folder, without its code and without what a merge writes itself."""
    ignored = (*NOT_COPIED, *WRITTEN_ANEW, "changes.journal")
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(folder).as_posix() for path in paths)
    return sorted(
        name
        for name in names
        if not name.startswith("code/") and not any(fnmatch.fnmatch(name.rpartition("/")[2], one) for one in ignored)
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _differ(theirs: Path, ours: Path) -> bool:
    """Returns whether neither of two journals is the beginning of the other."""
    size_bytes = min(_size(theirs), _size(ours))
    try:
        return size_bytes > 0 and fingerprint(theirs, size_bytes) != fingerprint(ours, size_bytes)
    except NotRegularError as error:
        raise RecordDamagedError(theirs, "it is not a regular file, there or here") from error


def _missing_changes(there: TrialFolder, here: TrialFolder, present: Collection[str], left: list[str]) -> bytes:
    """Returns the changes that were made there only: they can be joined, since each line is a change of its own.

    No checkpoint that is here is deleted because the other home has deleted its own files. A description that was
    changed in both homes stays as it is here, and `left` says so.
    """
    ours, theirs = _lines(here.changes_path), _lines(there.changes_path)
    is_described = any(isinstance(_decoded(line), TrialDescribed) for line in ours if line not in theirs)
    missing = []
    for line in theirs:
        if line in ours:
            continue
        record = _decoded(line)
        match record:
            case CheckpointCondemned() | CheckpointDeleted() | CheckpointPruned() if record.storage_id in present:
                pass
            case TrialDescribed() if is_described:
                left.append(
                    f"trial {there.trial_id}: its name, notes or verdict were changed there, and those of trial "
                    f"{here.trial_id} here, too, which stay as they are"
                )
            case _:
                missing.append(line + b"\n")
    return b"".join(missing)


def _lines(path: Path) -> dict[bytes, None]:
    try:
        whole, _, _ = read_regular(path).rpartition(b"\n")
    except FileNotFoundError:
        return {}
    return dict.fromkeys(line for line in whole.split(b"\n") if line)


def _decoded(line: bytes) -> Record | None:
    try:
        return decode_line(line)
    except ValueError:  # damaged: it comes along, and readers name it
        return None
