"""The home: one folder that holds every record, laid out as the package says."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import TypeVar

import msgspec

from core_sdk._version import __version__
from core_sdk.alive import AliveLock
from core_sdk.errors import (
    ExperimentNotFoundError,
    HomeNotADirectoryError,
    HomeNotWritableError,
    HomeTooNewError,
    NameTakenError,
    RecordDamagedError,
    TrialNotFoundError,
    UnsafePathError,
)
from core_sdk.files import write_atomically
from core_sdk.journal import encode_line, is_alive
from core_sdk.records import (
    FORMAT,
    ClusterInfo,
    CommandRecord,
    ExitRecord,
    ExperimentRecord,
    HomeRecord,
    JobRecord,
    Record,
    StopRequest,
    TrialRecord,
    check_name,
    decode_file,
    encode_file,
    from_json,
)

logger = logging.getLogger("core_sdk.tracking")

_T = TypeVar("_T")

CHANGES_NAME = "changes.journal"
"""What was done to a trial from outside."""

# A holder needs milliseconds.
_LOCK_WAIT_S = 10.0
_LOCK_PAUSE_S = 0.01

_ID = re.compile(r"[1-9][0-9]{0,17}")
_OF_ATTEMPT = re.compile(r"([1-9][0-9]{0,8})\.(?:journal|run\.json)")
_OF_RANK = re.compile(r"([1-9][0-9]{0,8})\.rank([1-9][0-9]{0,8})\.journal")


class Home:
    """An existing home. `Home.create` makes it, `Home.open` only reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs = root / "runs"
        self.experiments = root / "experiments"
        self.checkpoints = root / "checkpoints"
        self.jobs = root / "jobs"
        self.database = root / "tracker.db"

    @classmethod
    def create(cls, root: Path) -> Home:
        """The home at `root`, made where it is missing.

        Raises `HomeNotWritableError`, `HomeNotADirectoryError` or `HomeTooNewError`.
        """
        home = cls(root)
        try:
            home._check_format()
            for directory in (
                root,
                home.runs,
                home.experiments,
                home.experiments / "names",
                home.checkpoints,
            ):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            record = root / "home.json"
            if not record.exists():
                with contextlib.suppress(FileExistsError):
                    _write(record, HomeRecord(format=FORMAT, sdk_version=__version__), overwrite=False)
            if not os.access(home.runs, os.W_OK | os.X_OK):
                raise PermissionError("permission denied")
        except OSError as error:
            raise HomeNotWritableError(root, error.strerror or str(error)) from error
        return home

    @classmethod
    def open(cls, root: Path) -> Home:
        """The home at `root`, which may be missing: then it is empty.

        Raises `HomeNotADirectoryError` or `HomeTooNewError`.
        """
        home = cls(root)
        home._check_format()
        return home

    def create_trial(self) -> TrialFolder:
        """A new, empty trial; ids rise and are never used again."""
        trial_id = max(self.trial_ids(include_deleted=True), default=0) + 1
        while True:
            try:
                (self.runs / str(trial_id)).mkdir(mode=0o700)
                return TrialFolder(self, trial_id)
            except FileExistsError:
                trial_id += 1
            except OSError as error:
                raise HomeNotWritableError(self.root, error.strerror or str(error)) from error

    def trial(self, trial_id: int) -> TrialFolder:
        """Raises `TrialNotFoundError`."""
        folder = TrialFolder(self, trial_id)
        if not folder.exists():
            raise TrialNotFoundError(trial_id, self.root)
        return folder

    def trial_ids(self, *, include_deleted: bool = False) -> list[int]:
        return [
            trial_id
            for trial_id in _numbered_entries(self.runs)
            if include_deleted or TrialFolder(self, trial_id).exists()
        ]

    def experiment_ids(self) -> list[int]:
        return [
            experiment_id
            for experiment_id in _numbered_entries(self.experiments)
            if ExperimentFolder(self, experiment_id).path.joinpath("experiment.json").exists()
        ]

    def experiment(self, experiment_id: int) -> ExperimentFolder:
        """Raises `ExperimentNotFoundError`."""
        folder = ExperimentFolder(self, experiment_id)
        if not folder.record_path.exists():
            raise ExperimentNotFoundError(experiment_id, self.root)
        return folder

    def find_experiment(self, name: str) -> ExperimentFolder | None:
        """The experiment that is registered under this name. Raises `RecordDamagedError`."""
        return self._find_experiment(self._name_path(check_name("the experiment's name", name)), name)

    def new_experiment(self, name: str) -> ExperimentFolder:
        """Another one of this name, found by its id only until it is registered."""
        folder = self._create_experiment_folder()
        folder.write(ExperimentRecord(experiment_id=folder.experiment_id, name=name, created=time.time()))
        return folder

    def find_or_create_experiment(self, name: str) -> ExperimentFolder:
        """The experiment of this name; processes that race for a new one all get the same.

        Raises `RecordDamagedError` where damage keeps it from being found.
        """
        while (found := self.find_experiment(name)) is None:
            candidate = self._create_experiment_folder()
            try:
                candidate.write(ExperimentRecord(experiment_id=candidate.experiment_id, name=name, created=time.time()))
                candidate.register()
                return candidate
            except FileExistsError:
                candidate.delete()
            except OSError:
                if not self._name_path(name).exists():
                    # Nobody could find it, and the next one to ask would make another of this name.
                    candidate.delete()
                raise
        return found

    def _find_experiment(self, by_name: Path, name: str) -> ExperimentFolder | None:
        try:
            content = by_name.read_bytes()
        except FileNotFoundError:
            return None
        text = content.decode(errors="replace")
        if _ID.fullmatch(text) and (folder := ExperimentFolder(self, int(text))).is_named(name):
            return folder
        return self._mend_name(by_name, name, content)

    def _mend_name(self, by_name: Path, name: str, content: bytes) -> ExperimentFolder | None:
        """The experiments themselves know their names; one of none may have this one."""
        with _name_lock(by_name):
            if not by_name.exists() or by_name.read_bytes() != content:
                return None  # deleted, or mended by another: to be looked up again
            found = next(filter(lambda folder: folder.is_named(name), self._experiments()), None)
            right = None if found is None else str(found.experiment_id).encode()
            if right == content:
                return found  # it was just being renamed
            logger.warning("%s did not lead to the experiment %r, and was mended", by_name, name)
            if right is None:
                by_name.unlink()
            else:
                write_atomically(by_name, right)
            return found

    def _experiments(self) -> Iterator[ExperimentFolder]:
        return (ExperimentFolder(self, experiment_id) for experiment_id in self.experiment_ids())

    def _create_experiment_folder(self) -> ExperimentFolder:
        experiment_id = max(_numbered_entries(self.experiments), default=0) + 1
        while True:
            folder = ExperimentFolder(self, experiment_id)
            try:
                folder.path.mkdir(mode=0o700)
            except FileExistsError:
                experiment_id += 1
            except OSError as error:
                raise HomeNotWritableError(self.root, error.strerror or str(error)) from error
            else:
                return folder

    def read_job(self, name: str) -> JobRecord | None:
        """What a scheduler's job has begun here, as `write_job` left it."""
        return _read(self._job_path(name), JobRecord)

    def write_job(self, record: JobRecord) -> None:
        self.jobs.mkdir(mode=0o700, exist_ok=True)
        _write(self._job_path(record.job), record)

    @contextlib.contextmanager
    def lock_job(self, name: str) -> Iterator[None]:
        """While one process reads and then writes; waits for another for a while, then `BlockingIOError`."""
        self.jobs.mkdir(mode=0o700, exist_ok=True)
        lock = _lock(self._job_path(name).with_suffix(".lock"))
        try:
            yield
        finally:
            lock.release()

    def _job_path(self, name: str) -> Path:
        return self.jobs / f"{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()}.json"

    def _name_path(self, name: str) -> Path:
        return self.experiments / "names" / hashlib.sha256(name.encode()).hexdigest()

    def _check_format(self) -> None:
        try:
            record = _read(self.root / "home.json", HomeRecord)
        except NotADirectoryError as error:
            raise HomeNotADirectoryError(self.root) from error
        except RecordDamagedError as error:
            logger.warning("%s cannot be read (%s): delete it, and it is made anew", error.path, error.reason)
            return
        if record is not None and record.format > FORMAT:
            raise HomeTooNewError(self.root, record.format, FORMAT)


class ExperimentFolder:
    """One experiment's folder."""

    def __init__(self, home: Home, experiment_id: int) -> None:
        self._home = home
        self.experiment_id = experiment_id
        self.path = home.experiments / str(experiment_id)
        self.record_path = self.path / "experiment.json"

    def read(self) -> ExperimentRecord:
        """Raises `ExperimentNotFoundError`."""
        record = _read(self.record_path, ExperimentRecord)
        if record is None:
            raise ExperimentNotFoundError(self.experiment_id, self._home.root)
        return record

    def is_named(self, name: str) -> bool:
        """False where there is no such experiment. Raises `RecordDamagedError`."""
        record = _read(self.record_path, ExperimentRecord)
        return record is not None and record.name == name

    def write(self, record: ExperimentRecord) -> None:
        _write(self.record_path, record)

    @contextlib.contextmanager
    def edit(self) -> Iterator[ExperimentRecord]:
        """The record, to be changed in place; written at the end, one editor at a time."""
        from filelock import FileLock  # imports asyncio, which a training script need not pay for

        with FileLock(self.path / "experiment.lock", mode=0o600):
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
        """Whether it is found by its name."""
        found = self._home.find_experiment(self.read().name)
        return found is not None and found.experiment_id == self.experiment_id

    def register(self) -> None:
        """From now on it is found by its name. Raises `FileExistsError` if another one is."""
        by_name = self._home._name_path(self.read().name)
        write_atomically(by_name, str(self.experiment_id).encode(), overwrite=False)

    def rename(self, name: str) -> None:
        """From now on the experiment is found by this name only. Raises `NameTakenError`."""
        new_path = self._home._name_path(check_name("the experiment's name", name))
        with _name_lock(new_path), self.edit() as record:
            if name == record.name:
                return
            try:
                write_atomically(new_path, str(self.experiment_id).encode(), overwrite=False)
            except FileExistsError as error:
                raise NameTakenError(name) from error
            old_path, record.name = self._home._name_path(record.name), name
        self._forget_name(old_path)

    def delete(self) -> None:
        """Forgets the experiment; its empty folder keeps the id from being used again. Its trials are not touched."""
        record = None
        with contextlib.suppress(RecordDamagedError):  # what names it is then found to name nothing
            record = _read(self.record_path, ExperimentRecord)
        if record is not None:
            self._forget_name(self._home._name_path(record.name))
        self.record_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Takes back one that was never registered, with its id."""
        with contextlib.suppress(OSError):  # an experiment without trials is listed nowhere
            shutil.rmtree(self.path)

    def _forget_name(self, by_name: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            if by_name.read_bytes() == str(self.experiment_id).encode():
                by_name.unlink()


class TrialFolder:
    """One trial's folder: file names, and the small files read and written whole."""

    def __init__(self, home: Home, trial_id: int) -> None:
        self.home = home
        self.trial_id = trial_id
        self.path = home.runs / str(trial_id)
        self.tensorboard_path = self.path / "tensorboard"
        self.changes_path = self.path / CHANGES_NAME

    def exists(self) -> bool:
        return (self.path / "trial.json").exists()

    def clear(self) -> None:
        """Removes all that the folder holds; left empty, it keeps the id from being used again."""
        if self.path.is_symlink():
            raise UnsafePathError("the trial's folder", str(self.path), "is a symbolic link, and is not emptied")
        # First, so that nobody sees the trial without what belongs to it.
        (self.path / "trial.json").unlink(missing_ok=True)
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)

    def attempts(self) -> list[int]:
        """Attempts that have begun, in order; the latest may have no journal yet."""
        found = (_OF_ATTEMPT.fullmatch(entry.name) for entry in os.scandir(self.path))
        return sorted({int(match[1]) for match in found if match})

    def rank_journals(self) -> list[tuple[int, int]]:
        """Attempt and rank of the journals that ranks other than 0 keep, in order."""
        found = (_OF_RANK.fullmatch(entry.name) for entry in os.scandir(self.path))
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def journal_path(self, attempt: int) -> Path:
        return self.path / journal_name(attempt)

    def rank_journal_path(self, attempt: int, rank: int) -> Path:
        """Of a rank other than 0 it is made when that rank records something."""
        return self.path / journal_name(attempt, rank)

    def tensorboard_source_path(self, rank: int = 0) -> Path:
        """Where a rank's script writes event files of which it chooses some to be shown."""
        return self.path / (f"tensorboard.rank{rank}.local" if rank else "tensorboard.local")

    def alive_path(self, attempt: int) -> Path:
        """Locked by the script's process while it lives."""
        return self.path / f"{attempt}.alive"

    def supervised_path(self, attempt: int) -> Path:
        """Locked by the `core-sdk run` that started the attempt while that lives."""
        return self.path / f"{attempt}.supervised"

    def log_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.log"

    def stop_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.stop"

    def run_info_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.run.json"

    def write_run_info(self, attempt: int, info: ClusterInfo, *, overwrite: bool = True) -> None:
        _write(self.run_info_path(attempt), info, overwrite=overwrite)

    def read_run_info(self, attempt: int) -> ClusterInfo | None:
        """None for a script that nothing else started."""
        return _read(self.run_info_path(attempt), ClusterInfo)

    def is_running(self, attempt: int) -> bool:
        # What was started as an earlier attempt may be a launcher that has begun others since.
        supervised = (self.supervised_path(number) for number in range(attempt, 0, -1))
        return is_alive(self.alive_path(attempt)) or any(map(is_alive, supervised))

    def running_attempt(self) -> int | None:
        """The attempt that is being executed now; only the latest can be."""
        attempts = self.attempts()
        return attempts[-1] if attempts and self.is_running(attempts[-1]) else None

    def read_record(self) -> TrialRecord:
        """Raises `TrialNotFoundError` or `RecordDamagedError`."""
        record = _read(self.path / "trial.json", TrialRecord)
        if record is None:
            raise TrialNotFoundError(self.trial_id, self.home.root)
        try:
            from_json(record.hparams)
            from_json(record.data)
        except ValueError as error:
            raise RecordDamagedError(self.path / "trial.json", str(error)) from error
        return record

    def write_record(self, record: TrialRecord) -> None:
        _write(self.path / "trial.json", record)

    def read_command(self) -> CommandRecord | None:
        return _read(self.path / "command.json", CommandRecord)

    def write_command(self, record: CommandRecord) -> None:
        _write(self.path / "command.json", record)

    def exit_path(self, attempt: int) -> Path:
        return self.path / f"{attempt}.exit"

    def read_exit(self, attempt: int) -> ExitRecord | None:
        return _read(self.exit_path(attempt), ExitRecord)

    def write_exit(self, attempt: int, record: ExitRecord) -> None:
        _write(self.exit_path(attempt), record)

    def read_stop_request(self, attempt: int) -> StopRequest | None:
        return _read(self.stop_path(attempt), StopRequest)

    def request_stop(self, attempt: int, source: str) -> None:
        """Asks the attempt to stop: its `should_preempt()` becomes true within a second."""
        _write(self.stop_path(attempt), StopRequest(time=time.time(), source=source))

    def append_change(self, record: Record) -> None:
        """Records something done to the trial from outside, durably; `OSError` leaves nothing of the record.

        One such writer at a time.
        """
        from filelock import FileLock  # imports asyncio, which a training script need not pay for

        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with (
            FileLock(self.path / "changes.lock", mode=0o600),
            os.fdopen(os.open(self.changes_path, flags, 0o600), "a+b", buffering=0) as file,
        ):
            _append_line(file, encode_line(record))


def journal_name(attempt: int, rank: int = 0) -> str:
    """The name, in the trial's folder, of the journal that a rank keeps of an attempt."""
    return f"{attempt}.rank{rank}.journal" if rank else f"{attempt}.journal"


def _append_line(file: FileIO, line: bytes) -> None:
    end = file.seek(0, os.SEEK_END)
    if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
        line = b"\n" + line  # a writer died in the middle of its line
    try:
        if file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)
        os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(end)
        raise


def _numbered_entries(directory: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in os.scandir(directory) if _ID.fullmatch(entry.name))
    except FileNotFoundError:
        return []


def _name_lock(by_name: Path) -> contextlib.AbstractContextManager[object]:
    """Held by who changes what a name leads to."""
    from filelock import FileLock  # imports asyncio, which a training script need not pay for

    return FileLock(by_name.with_suffix(".lock"), mode=0o600)


def _lock(path: Path) -> AliveLock:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            return AliveLock(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_LOCK_PAUSE_S)


def _write(path: Path, record: msgspec.Struct, *, overwrite: bool = True) -> None:
    write_atomically(path, encode_file(record), overwrite=overwrite)


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        return decode_file(path.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RecordDamagedError(path, str(error)) from error
