"""The folder of an experiment, and the names by which experiments are found."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.files import NotRegularError, read_regular, write_atomically
from core_sdk._ground.records import (
    ExperimentRecord,
    NumbersHereRecord,
    SubmissionRecord,
    check_name,
    decode_values,
    encode_values,
)
from core_sdk._home.folders._files import ID, exists, numbered_entries, read_content, read_file, write_file
from core_sdk.errors import ExperimentError, ExperimentNotFoundError, NameTakenError, RecordDamagedError

logger = logging.getLogger("core_sdk.tracking")


class ExperimentFolder:
    """The folder of an experiment."""

    def __init__(self, home_root: Path, experiment_id: int) -> None:
        self._home_root = home_root
        self.experiment_id = experiment_id
        self.path = home_root / "experiments" / str(experiment_id)
        self.record_path = self.path / "experiment.json"
        self.config_path = self.path / "config.yaml"
        self.completed_config_path = self.path / "config.json"
        self.submission_path = self.path / "submission.json"
        self.events_path = self.path / "events.journal"
        self.numbers_path = self.path / "trials.json"

    @property
    def files(self) -> list[Path]:
        """The files of the folder that an experiment consists of, its record first."""
        return [
            self.record_path,
            self.config_path,
            self.completed_config_path,
            self.submission_path,
            self.events_path,
            self.numbers_path,
        ]

    def read(self) -> ExperimentRecord:
        """Reads the record. Raises `ExperimentNotFoundError` or `RecordDamagedError`."""
        record = read_file(self.record_path, ExperimentRecord)
        if record is None:
            raise ExperimentNotFoundError(self.experiment_id, self._home_root)
        return record

    def read_own(self) -> ExperimentRecord:
        """Reads the record like `read`, in order to steer the experiment.

        Also raises `ExperimentError` if it is another home that carries it out.
        """
        record = self.read()
        if record.is_received:
            problem = "is carried out by the home that has sent it, and can only be steered there"
            raise ExperimentError.of(self.experiment_id, problem)
        return record

    def origin(self) -> dict[str, str]:
        """Returns whose experiment it is, and of which home, where several homes are read as one."""
        return {}

    def local_trials(self) -> Callable[[int], int]:
        """Returns the function from the number of a trial in the journal of events to the one that it has here.

        It returns 0 for a trial that is not here. Raises `RecordDamagedError`.
        """
        numbers = self.numbers_here()
        return (lambda trial_id: trial_id) if numbers is None else (lambda trial_id: numbers.get(trial_id, 0))

    def numbers_here(self) -> Mapping[int, int] | None:
        """Returns the numbers here of the trials of an experiment that was received. Raises `RecordDamagedError`."""
        record = read_file(self.numbers_path, NumbersHereRecord)
        return None if record is None else record.numbers

    def add_local_trials(self, numbers: Mapping[int, int]) -> None:
        """Notes the numbers here of trials of an experiment that was received. One process at a time may do so."""
        before = self.numbers_here()
        if (after := {**(before or {}), **numbers}) != before:
            write_file(self.numbers_path, NumbersHereRecord(numbers=after))

    def is_named(self, name: str) -> bool:
        """Returns whether `init(name=…)` means this experiment. Raises `RecordDamagedError`."""
        record = read_file(self.record_path, ExperimentRecord)
        return record is not None and record.name == name and not (record.is_submitted or record.is_received)

    def write(self, record: ExperimentRecord) -> None:
        write_file(self.record_path, record)

    def read_submission(self) -> SubmissionRecord:
        """Reads the submission. Raises `RecordDamagedError`, or `ExperimentNotFoundError` if there was none."""
        record = read_file(self.submission_path, SubmissionRecord)
        if record is None:
            if self.read().is_submitted:
                raise RecordDamagedError(self.submission_path, "it is missing")
            raise ExperimentNotFoundError(self.experiment_id, self._home_root)
        return record

    def read_beginnings(self) -> set[str]:
        """Returns the checkpoints that trials are to begin with if the experiment was submitted.

        Raises `RecordDamagedError` if the submission is damaged. What a damaged record of the search has named is
        unknown; as a rule it is checkpoints of the experiment's own trials, which no collection touches then.
        """
        submission = read_file(self.submission_path, SubmissionRecord)
        if submission is None:
            return set()
        record = None
        with contextlib.suppress(RecordDamagedError):
            record = read_file(self.record_path, ExperimentRecord)
        wanted = [] if record is None or record.search is None else record.search.beginnings
        return {*wanted, *([] if submission.warm_start is None else [submission.warm_start])}

    def write_submission(self, record: SubmissionRecord) -> None:
        write_file(self.submission_path, record)

    def read_config(self) -> dict[str, Any]:
        """Reads the completed configuration as JSON values. Raises `RecordDamagedError`."""
        content = _read_existing(self.completed_config_path)
        try:
            return decode_values(content)
        except ValueError as error:
            raise RecordDamagedError(self.completed_config_path, str(error)) from error

    def write_config(self, values: Mapping[str, Any]) -> None:
        write_atomically(self.completed_config_path, encode_values(values))

    def read_original_config(self) -> bytes:
        """Reads the configuration as its author wrote it. Raises `RecordDamagedError`."""
        content = _read_existing(self.config_path)
        if hashlib.sha256(content).hexdigest() != self.read_submission().config_sha256:
            raise RecordDamagedError(self.config_path, "it is not what was submitted")
        return content

    @contextlib.contextmanager
    def edit(self) -> Iterator[ExperimentRecord]:
        """Yields the record to be changed, and writes it at the end of the block. One process at a time can edit it."""
        with file_lock(self.path / "experiment.lock"):
            record = self.read()
            before = msgspec.json.encode(record)
            yield record
            if msgspec.json.encode(record) != before:
                self.write(record)

    def add_labels(self, labels: Sequence[str]) -> None:
        with self.edit() as record:
            record.labels = list(dict.fromkeys([*record.labels, *labels]))

    @property
    def is_registered(self) -> bool:
        """Whether the experiment is found by its name."""
        found = find_experiment(self._home_root, self.read().name)
        return found is not None and found.experiment_id == self.experiment_id

    def register(self) -> None:
        """Registers the name, by which the experiment is found. Raises `FileExistsError` if another one has it."""
        by_name = name_path(self._home_root, self.read().name)
        write_atomically(by_name, str(self.experiment_id).encode(), overwrite=False)

    def rename(self, name: str) -> None:
        """Changes the name. Raises `NameTakenError`, except for a submitted experiment, whose name may be shared."""
        if self.read().is_submitted:
            with self.edit() as submitted:
                submitted.name = check_name("the experiment's name", name)
            return
        new_path = name_path(self._home_root, check_name("the experiment's name", name))
        with _name_lock(new_path), self.edit() as record:
            if name == record.name:
                return
            try:
                write_atomically(new_path, str(self.experiment_id).encode(), overwrite=False)
            except FileExistsError as error:
                raise NameTakenError(name) from error
            old_path, record.name = name_path(self._home_root, record.name), name
        self._forget_name(old_path)

    def delete(self) -> None:
        """Deletes the files. The empty folder keeps the id from being used again. Does not touch the trials."""
        record = None
        with contextlib.suppress(RecordDamagedError):  # the name then leads nowhere, and is corrected later
            record = read_file(self.record_path, ExperimentRecord)
        if record is not None:
            self._forget_name(name_path(self._home_root, record.name))
        for path in self.files:
            path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Removes an experiment that was never registered. Its id may be used again."""
        with contextlib.suppress(OSError):  # an experiment without trials is listed nowhere
            shutil.rmtree(self.path)

    def _forget_name(self, by_name: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            if _read_name(by_name) == str(self.experiment_id).encode():
                by_name.unlink()


def _read_existing(path: Path) -> bytes:
    content = read_content(path)
    if content is None:
        raise RecordDamagedError(path, "it is missing")
    return content


def experiment_ids(home_root: Path) -> list[int]:
    """Returns the ids of the experiments that have a record."""
    return [
        experiment_id
        for experiment_id in numbered_entries(home_root / "experiments")
        if exists(ExperimentFolder(home_root, experiment_id).record_path)
    ]


def find_experiment(home_root: Path, name: str) -> ExperimentFolder | None:
    """Returns the experiment that is registered under this name, or None. Raises `RecordDamagedError`."""
    by_name = name_path(home_root, name)
    try:
        content = _read_name(by_name)
    except FileNotFoundError:
        return None
    text = content.decode(errors="replace")
    if ID.fullmatch(text) and (folder := ExperimentFolder(home_root, int(text))).is_named(name):
        return folder
    return _mend_name(home_root, name, content)


def _read_name(by_name: Path) -> bytes:
    """Reads the file of a name; empty if it is not a regular file. Raises `FileNotFoundError`."""
    try:
        return read_regular(by_name)
    except NotRegularError:
        return b""


def _mend_name(home_root: Path, name: str, content: bytes) -> ExperimentFolder | None:
    """Corrects a name that leads to no experiment of this name, by searching the experiments' own records."""
    by_name = name_path(home_root, name)
    with _name_lock(by_name):
        if not os.path.lexists(by_name) or _read_name(by_name) != content:
            return None  # another process has deleted or corrected it: the caller looks it up again
        folders = (ExperimentFolder(home_root, experiment_id) for experiment_id in experiment_ids(home_root))
        found = next((folder for folder in folders if folder.is_named(name)), None)
        right = None if found is None else str(found.experiment_id).encode()
        if right == content:
            return found  # it was just being renamed
        logger.warning("%s did not lead to the experiment %r, and was corrected", by_name, name)
        if right is None:
            by_name.unlink()
        else:
            write_atomically(by_name, right)
        return found


def name_path(home_root: Path, name: str) -> Path:
    """Returns the path of the file that holds the id of the experiment of this name."""
    return home_root / "experiments" / "names" / hashlib.sha256(name.encode()).hexdigest()


def _name_lock(by_name: Path) -> contextlib.AbstractContextManager[None]:
    """Returns the lock for a process that changes the experiment to which a name leads."""
    return file_lock(by_name.with_suffix(".lock"))
