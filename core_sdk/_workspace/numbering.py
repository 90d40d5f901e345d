"""Tells which trial of the workspace a trial of another home is, and gives it a number if there is none.

A trial is known again by its `TrialKey`, and its number belongs to the home that has sent it. A copy of that home has
the same trials under another identity. As long as it has nothing that the workspace lacks, its trial is the one that is
there. Once it has more, it went on elsewhere, and the trial gets a number of its own: two continuations are never
mixed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.files import fingerprint, read_regular, write_atomically
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import ExperimentRecord, TrialRecord, decode_file, encode_file
from core_sdk._home.folders import Home, Ownership, TrialFolder
from core_sdk._workspace.actions.asker import present_asker
from core_sdk._workspace.wire import Allotted, AnnouncedExperiment, AnnouncedTrial, Announcement, Extent, TrialKey
from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError


class Number(msgspec.Struct, kw_only=True):
    """A number that a trial has in the workspace."""

    trial_id: int
    home: str
    """The identity of the home that has sent it."""
    is_made: bool = False
    """Whether its record was written, so that without one it was deleted."""
    person: str = ""
    """The person whose program has sent it."""


class NumbersRecord(msgspec.Struct, kw_only=True):
    """`<home>/received/<sha256>.json`: the numbers of a trial, by the SHA-256 of its key."""

    format: int = 1
    numbers: list[Number] = []


class ExperimentNumberRecord(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/received/<sha256>.json`: the number of a submitted experiment of another home."""

    format: int = 1
    experiment_id: int


def allot(home: Home, told: Announcement) -> list[tuple[Allotted, TrialFolder]]:
    """Returns the trials that the announced ones are here, and makes those that are missing.

    One process or thread at a time does. Raises `OSError`: what was made before it stays made.
    """
    make_directory(home.root / "received", exist_ok=True)
    with file_lock(home.root / "received.lock"):
        experiments: dict[int, int] = {}
        of_searches: dict[int, dict[int, int]] = {}
        found = []
        for trial in told.trials:
            there = trial.experiment
            if there.experiment_id not in experiments:
                experiments[there.experiment_id] = _experiment(home, told, there)
            allotted = _allot(home, told, trial, experiments[there.experiment_id])
            found.append((allotted, home.folder(allotted.number)))
            if there.is_submitted:
                numbers = of_searches.setdefault(experiments[there.experiment_id], {})
                numbers[trial.record.trial_id] = allotted.number
        for experiment_id, numbers in of_searches.items():
            home.experiment(experiment_id).add_local_trials(numbers)
        return found


def number_of(home: Home, trial_id: int) -> Number | None:
    """Returns what is known of the home that has sent a trial; None if none has. Raises `CoreSDKError`."""
    key = TrialKey.of(home.trial(trial_id).read_record())
    return next((one for one in _read(_path(home, key)).numbers if one.trial_id == trial_id), None)


def lacking(folder: TrialFolder, grown: Mapping[str, Extent]) -> list[str]:
    """Returns the files of which the trial has less than this. Raises `OSError`."""
    return [name for name, extent in grown.items() if _size(folder.path / name) < extent.size_bytes]


def differing(folder: TrialFolder, grown: Mapping[str, Extent]) -> list[str]:
    """Returns the files of which the trial has as much as this, or more, with another content. Raises `OSError`."""
    return [
        name
        for name, extent in grown.items()
        if _size(path := folder.path / name) >= extent.size_bytes
        and fingerprint(path, extent.size_bytes) != extent.checksum
    ]


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _allot(home: Home, told: Announcement, trial: AnnouncedTrial, experiment_id: int) -> Allotted:
    path = _path(home, TrialKey.of(trial.record))
    known = _read(path)
    own = _own(known, told)
    if own is None or own.trial_id == trial.instead_of:
        others = [number for number in known.numbers if number is not own and number.is_made]
        for other in others:
            folder = home.folder(other.trial_id)
            if other.trial_id == trial.instead_of or not folder.exists():
                continue
            if not lacking(folder, trial.grown) and not differing(folder, trial.grown):
                return Allotted(other.trial_id, is_of_copy=True)
        own = Number(trial_id=home.create_trial().trial_id, home=told.home, person=present_asker().name)
        known.numbers.append(own)
        write_atomically(path, encode_file(known))
    folder = home.folder(own.trial_id)
    if own.is_made and not folder.exists():
        return Allotted(own.trial_id, is_deleted=True)
    record = _renumbered(home, told, trial, own.trial_id, experiment_id)
    if not own.is_made or folder.read_record() != record:
        folder.write_record(record)
    if not own.is_made:
        own.is_made = True
        write_atomically(path, encode_file(known))
    return Allotted(own.trial_id, differing=differing(folder, trial.grown))


def _own(known: NumbersRecord, told: Announcement) -> Number | None:
    """Returns the newest number that the home has."""
    ownership = Ownership(told.home, told.adopted)
    return next((each for each in reversed(known.numbers) if ownership.covers(each.home)), None)


def _renumbered(home: Home, told: Announcement, trial: AnnouncedTrial, number: int, experiment_id: int) -> TrialRecord:
    def here(trial_id: int | None) -> int | None:
        if trial_id is None or trial_id == trial.record.trial_id:
            return None if trial_id is None else number
        key = trial.relatives.get(str(trial_id))
        known = None if key is None else _own(_read(_path(home, key)), told)
        return None if known is None else known.trial_id

    record = trial.record
    return msgspec.structs.replace(
        record,
        trial_id=number,
        experiment_id=experiment_id,
        first_id=TrialKey.of(record).first_id,
        parent=here(record.parent),
        started_by=here(record.started_by),
        try_id=here(record.try_id),
        is_named=True,
    )


def _experiment(home: Home, told: Announcement, there: AnnouncedExperiment) -> int:
    """Returns the experiment of the workspace: the one of this name, or one of its own if it was submitted."""
    if not there.is_submitted:
        folder = home.find_or_create_experiment(there.name)
    else:
        path = _path(home, [told.home.partition("-")[0], there.experiment_id, there.created])
        try:
            folder = home.experiment(decode_file(read_regular(path), ExperimentNumberRecord).experiment_id)
        except (FileNotFoundError, ExperimentNotFoundError):  # it is new, or was deleted
            folder = home.allot_experiment()
            record = ExperimentRecord(experiment_id=folder.experiment_id, name=there.name, created=there.created)
            folder.write(msgspec.structs.replace(record, first_id=there.experiment_id, is_received=True))
            write_atomically(path, encode_file(ExperimentNumberRecord(experiment_id=folder.experiment_id)))
        except ValueError as error:
            raise RecordDamagedError(path, str(error)) from error
    with folder.edit() as kept:
        kept.is_received = there.is_submitted
        kept.labels = list(dict.fromkeys([*kept.labels, *there.labels]))
        kept.description = kept.description or there.description
        kept.notes = kept.notes or there.notes
        kept.searcher_metric = kept.searcher_metric or there.searcher_metric
        kept.study = kept.study or there.study
    return folder.experiment_id


def _path(home: Home, key: object) -> Path:
    return home.root / "received" / f"{hashlib.sha256(msgspec.json.encode(key)).hexdigest()}.json"


def _read(path: Path) -> NumbersRecord:
    try:
        return decode_file(read_regular(path), NumbersRecord)
    except FileNotFoundError:
        return NumbersRecord(numbers=[])
    except ValueError as error:
        raise RecordDamagedError(path, str(error)) from error
