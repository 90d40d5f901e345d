"""Trials in one file: a tar archive that is laid out as a home with only these trials."""

from __future__ import annotations

import contextlib
import fnmatch
import io
import tarfile
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec

from core_sdk._ground.records import CodeRecord, encode_file
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.history import read_history
from core_sdk._home.moving.merging import NOT_COPIED, Merged, merge_aside, merging
from core_sdk._home.storages import path_inside
from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError, TrialRunningError


def export_trials(home: Home, trial_ids: Sequence[int], path: Path) -> None:
    """Writes trials, with their checkpoints in the home and their code, into a new file.

    Their experiments are only names there, so that the trials of a search have its code as tries have their own.

    Raises `TrialNotFoundError`, `RecordDamagedError`, `TrialRunningError`, or `FileExistsError`.
    """
    folders = [home.trial(trial_id) for trial_id in dict.fromkeys(trial_ids)]
    for folder in folders:
        if (running := folder.running_attempt()) is not None:
            raise TrialRunningError(folder.trial_id, running, "export")
    if path.exists():
        raise FileExistsError(17, "it exists already", str(path))
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with tarfile.open(unfinished, "w") as archive:
            for experiment_id in sorted({folder.read_record().experiment_id for folder in folders}):
                _add_experiment(archive, home, experiment_id)
            for folder in folders:
                _add_trial(archive, home, folder)
            for sha256 in sorted({code.sha256 for folder in folders if (code := _code(home, folder)) is not None}):
                path_of_code = home.code_archive(sha256)
                with contextlib.suppress(FileNotFoundError):  # it is missing, as it is here
                    archive.add(path_of_code, str(path_of_code.relative_to(home.root)))
            # The last file, without which the archive was cut off: tar itself does not notice that.
            archive.add(home.root / "home.json", "home.json")
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)


def import_trials(home: Home, path: Path) -> Merged:
    """Takes the trials of an exported file into the home, as `merge` does.

    Raises `RecordDamagedError` for a file that is damaged or is none, and `HomeTooNewError`.
    """
    with merging(home) as aside:
        unpacked = aside / "imported"
        try:
            with tarfile.open(path) as archive:
                archive.extractall(unpacked, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise RecordDamagedError(path, str(error) or "it is cut off") from error
        if not (unpacked / "home.json").exists():
            raise RecordDamagedError(path, "it is cut off, or was not written by `core-sdk trial export`")
        return merge_aside(home, Home.open(unpacked), aside)


def _code(home: Home, folder: TrialFolder) -> CodeRecord | None:
    """Returns the code of a try, or of the search to which the trial belongs."""
    record = folder.read_record()
    with contextlib.suppress(ExperimentNotFoundError, RecordDamagedError):
        if record.code is None and (code := home.experiment(record.experiment_id).read_submission().code) is not None:
            return CodeRecord(sha256=code)
    return record.code


def _add_file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    archive.addfile(member, io.BytesIO(content))


def _add_experiment(archive: tarfile.TarFile, home: Home, experiment_id: int) -> None:
    record = home.experiment(experiment_id).read()
    record = msgspec.structs.replace(record, is_submitted=False, is_received=False, search=None, parent=None)
    _add_file(archive, f"experiments/{experiment_id}/experiment.json", encode_file(record))


def _add_trial(archive: tarfile.TarFile, home: Home, folder: TrialFolder) -> None:
    directory = f"runs/{folder.trial_id}"
    record_name = f"{directory}/{folder.record_path.name}"

    def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = member.name.rpartition("/")[2]
        if member.name == record_name:
            return None  # it is written with its code
        if member.issym() and member.linkname.startswith("/"):  # data that was linked into the code of a try
            return None
        return None if any(fnmatch.fnmatch(name, pattern) for pattern in NOT_COPIED) else member

    archive.add(folder.path, directory, filter=chosen)
    record = msgspec.structs.replace(folder.read_record(), code=_code(home, folder))
    _add_file(archive, record_name, encode_file(record))
    for checkpoint in read_history(folder).checkpoints:
        inside = path_inside(home, checkpoint.record.storage)
        if inside is not None:
            name = inside / checkpoint.record.storage_id
            with contextlib.suppress(FileNotFoundError):  # it is missing, as it is here
                archive.add(home.root / name, str(name))
