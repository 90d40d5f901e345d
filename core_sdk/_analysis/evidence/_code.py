"""Compares the sources that the training of a variation had with its parent's."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from core_sdk._execution.experiments.code import IGNORE_FILES, select
from core_sdk._home.folders import TrialFolder
from core_sdk._home.sources import SUFFIXES, KeptFile, SourceArchive, Sources, read_sources
from core_sdk.errors import CodeDirectoryError

_MOST_ENTRIES = 20_000


@dataclass(frozen=True)
class CodeChanges:
    """The code of a trial beside its parent's, and what one must know to trust that."""

    files: Mapping[str, list[str]] | None
    """The lines of a unified diff without context, of each file that differs: those of both trials come first.

    None if the sources of one of the trials are not known."""
    notes: list[str]


@dataclass(frozen=True)
class _TrialSources:
    """The sources of a trial: what its last attempt had, as far as that is known."""

    files: Mapping[str, KeptFile]
    is_copied: bool
    """Whether the whole directory was copied, so that a file that is not there was not there."""
    is_imported: bool
    """Whether the files that its process has imported are known."""
    notes: list[str]


def keep_sources(folder: TrialFolder, directory: Path) -> str:
    """Copies the text files of the directory of which a program is made; returns why they are not kept, or nothing.

    `.gitignore`, `.detignore` and `.coreignore` of the directory are obeyed.
    """
    ignore_files = (".gitignore", *IGNORE_FILES)
    try:
        entries = select(
            directory,
            left_out=folder.home_root,
            max_size_bytes=math.inf,
            most_entries=_MOST_ENTRIES,
            ignore_files=ignore_files,
        )
        archive = SourceArchive()
        archive.add({one.name: one.path for one in entries if one.path.suffix in SUFFIXES and one.size_bytes})
        archive.write(folder.sources_path)
    except (CodeDirectoryError, OSError) as error:
        return f"its sources are not kept: {error}"
    return ""


def code_changes(parent: TrialFolder, trial: TrialFolder) -> CodeChanges:
    """Returns what was changed in the code of a trial, as far as the sources of both trials are known."""
    before, after = _sources(parent), _sources(trial)
    if before is None or after is None:
        unknown = parent if before is None else trial
        return CodeChanges(None, [f"not compared: no sources of trial {unknown.trial_id} were kept"])
    names = before.files.keys() | after.files.keys()
    common = before.files.keys() & after.files.keys()
    if not (before.is_copied and after.is_copied):
        names = common
    imported = {name for name in names if name.startswith("..")}
    alone = sorted(imported - common) if before.is_imported and after.is_imported else []
    diffs = {name: _diff(name, before.files.get(name), after.files.get(name)) for name in sorted(names - {*alone})}
    if not (before.is_imported and after.is_imported):
        diffs = {name: lines for name, lines in diffs.items() if name not in imported}
    first = sorted(diffs, key=lambda name: (name not in common, not name.endswith(".py"), name))
    notes = [*after.notes, *(f"of trial {parent.trial_id}: {note}" for note in before.notes)]
    if alone:
        notes.append(f"imported by one of the two trials only: {', '.join(alone)}")
    return CodeChanges({name: diffs[name] for name in first if diffs[name]}, notes)


def _sources(folder: TrialFolder) -> _TrialSources | None:
    copied = read_sources(folder.sources_path)
    attempts = {number: read_sources(folder.imported_path(number)) for number in folder.attempts()}
    known = {number: found for number, found in attempts.items() if found is not None}
    if copied is None and not known:
        return None
    files: dict[str, KeptFile] = dict(copied.files) if copied else {}
    notes: list[str] = []
    if copied and copied.num_left_out:
        notes.append(f"{copied.num_left_out:,} files of its directory were too many to be kept")
    earlier: Sources | None = None
    for number, found in known.items():
        resumed = [] if earlier is None else _differing(earlier.files, found.files)
        if resumed:
            notes.append(f"edited before attempt {number}, which is shown: {', '.join(resumed)}")
        elif earlier is None and copied and (edited := _differing(copied.files, found.files)):
            notes.append(f"edited after `run` had copied it, shown as it was trained: {', '.join(edited)}")
        files.update(found.files)
        earlier = found
    if earlier is not None and (unsure := _written_since(earlier, copied)):
        notes.append(f"edited while it ran, so that it may have run an older version: {', '.join(unsure)}")
    return _TrialSources(files, copied is not None, bool(known), notes)


def _differing(before: Mapping[str, KeptFile], after: Mapping[str, KeptFile]) -> list[str]:
    return sorted(name for name in before.keys() & after.keys() if before[name].lines != after[name].lines)


def _written_since(found: Sources, copied: Sources | None) -> Iterable[str]:
    """Returns the files that were written after the process that has imported them had begun.

    One that is as it was copied before is none of them, whatever the clock of its file server says.
    """
    before = {} if copied is None else copied.files
    written = (name for name, source in found.files.items() if source.modified > found.began)
    return sorted(name for name in written if name not in before or before[name] != found.files[name])


def _diff(name: str, before: KeptFile | None, after: KeptFile | None) -> list[str]:
    old, new = before.lines if before else [], after.lines if after else []
    return list(difflib.unified_diff(old, new, name, name, lineterm="", n=0))[1:]  # without the line "--- NAME"
