"""The home, which finds and makes its trials and experiments."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import google_crc32c

from core_sdk._ground.alive import AliveLock, once_free
from core_sdk._ground.files import explained, read_regular, write_atomically
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import FORMAT, AdoptedRecord, ExperimentRecord, HomeRecord, JobRecord, check_name
from core_sdk._ground.version import __version__
from core_sdk._home.folders._experiment_folder import ExperimentFolder, experiment_ids, find_experiment, name_path
from core_sdk._home.folders._files import ID, exists, numbered_entries, read_file, write_file
from core_sdk._home.folders._identity import Identity, Ownership
from core_sdk._home.folders._reserve import fill_reserve
from core_sdk._home.folders._trial_folder import TrialFolder
from core_sdk.errors import (
    ExperimentNotFoundError,
    HomeNotWritableError,
    HomeTooNewError,
    RecordDamagedError,
    TrialNotFoundError,
)

logger = logging.getLogger("core_sdk.tracking")

GATHERING_LOCK = "gathering.lock"
"""The name of a file in a folder that gathers homes, which is no home of its own."""

Kind = Literal["trial", "experiment"]

# The lock of a job is held for milliseconds.
_LOCK_WAIT_S = 10.0


class Home:
    """An existing home. `Home.create` makes it, `Home.open` only reads it."""

    is_gathered: ClassVar[bool] = False
    """Whether it is several homes that are read as one: a `core_sdk._home.folders.gathering.GatheredHome`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def location(self) -> str:
        """The place of the home, for people."""
        return str(self.root)

    def check_changeable(self) -> None:
        """Raises `HomesOnlyReadError` for several homes that are read as one, since they share nothing to change."""

    def own(self, kind: Kind, number: int) -> tuple[Home, int]:
        """Returns the home in which a trial or an experiment is changed, and its number there.

        Raises `HomesOnlyReadError` if it lies in somebody else's home, among several that are read as one.
        """
        return self, number

    def own_homes(self) -> list[str] | None:
        """Returns which of several homes are the user's own; None for a single home."""
        return None

    def renew(self) -> Mapping[Path, str]:
        """Looks for what is new in homes that are read as one, and returns which are left out, and why."""
        return {}

    def name_of(self, path: Path) -> str:
        """Returns the name of a file of the home, for people."""
        return str(path.relative_to(self.root))

    def home_of(self, trial_id: int) -> Home:
        """Returns the home that has the checkpoints of a trial."""
        return self

    def local_trials(self, experiment_id: int) -> Callable[[int], int]:
        """Returns the function of `ExperimentFolder.local_trials`. Raises `RecordDamagedError`."""
        return self.experiment_folder(experiment_id).local_trials()

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def experiments(self) -> Path:
        return self.root / "experiments"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def code(self) -> Path:
        return self.root / "code"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def master(self) -> Path:
        """The record of the master that runs in the background, or was killed."""
        return self.root / "master.json"

    @property
    def master_lock(self) -> Path:
        """The file that a master locks while it lives."""
        return self.root / "master.lock"

    @property
    def record(self) -> Path:
        """The record that says that this is a home, and of which format."""
        return self.root / "home.json"

    @property
    def database(self) -> Path:
        return self.root / "tracker.db"

    @property
    def page(self) -> Path:
        return self.root / "page.json"

    @property
    def _identity_path(self) -> Path:
        return self.root / "identity"

    @property
    def _owner_path(self) -> Path:
        return self.root / "spool"

    @property
    def _adopted_path(self) -> Path:
        return self.root / "adopted.json"

    def is_first_resume(self) -> bool:
        """Returns whether no call for this home has returned True before."""
        try:
            write_atomically(self.root / "resumed", b"", overwrite=False, is_durable=False)
        except OSError:
            return False
        return True

    @classmethod
    def create(cls, root: Path) -> Home:
        """Opens the home at `root`, and makes it if it does not exist.

        Raises `HomeNotWritableError` or `HomeTooNewError`.
        """
        home = cls(root)
        try:
            home._check_format()
            if (root / GATHERING_LOCK).exists():
                raise PermissionError("it only gathers the trials of other homes")
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for directory in (home.runs, home.experiments, home.experiments / "names", home.checkpoints):
                make_directory(directory, exist_ok=True)
            if not home.record.exists():
                with contextlib.suppress(FileExistsError):
                    write_file(home.record, HomeRecord(format=FORMAT, sdk_version=__version__), overwrite=False)
            fill_reserve(root)
            if not os.access(home.runs, os.W_OK | os.X_OK):
                raise PermissionError("permission denied")
        except OSError as error:
            raise HomeNotWritableError(root, explained(error).strerror or str(error)) from error
        return home

    @classmethod
    def open(cls, root: Path) -> Home:
        """Opens the home at `root`, which is empty if it does not exist.

        Raises `HomeNotWritableError` if it is no directory, or `HomeTooNewError`.
        """
        home = cls(root)
        home._check_format()
        return home

    def identity(self) -> str:
        """Returns a name that no other home has, not even a copy or a snapshot of this one. The first call makes it.

        It stays the same when the folder is renamed or mounted elsewhere.
        """
        if (identity := self.read_identity()) is None:
            with contextlib.suppress(FileExistsError):
                write_atomically(self._identity_path, _with_checksum(uuid.uuid4().hex), overwrite=False)
            identity = self._identified(_read_identity(self._identity_path))
        return identity

    def read_identity(self) -> str | None:
        """Returns the identity, or None if there is no home, or no identity yet. Raises `RecordDamagedError`."""
        try:
            return self._identified(_read_identity(self._identity_path))
        except OSError:
            return None

    def _identified(self, name: str) -> str:
        return str(Identity.of(name, (self.root, self.runs, self.experiments)))

    def draw_identity(self) -> None:
        """Gives the home another identity. What it has stored elsewhere then belongs to the home that it was."""
        write_atomically(self._identity_path, _with_checksum(uuid.uuid4().hex))

    def owner(self) -> str:
        """Returns the identity of the home to which the records of this one belong: its own, unless this is a spool.

        It is empty if the identity is damaged. Checkpoints that are then stored outside the home are not deleted by a
        policy.
        """
        try:
            return self.read_owner() or self.identity()
        except RecordDamagedError as error:
            logger.warning("%s", error)
            return ""

    def read_owner(self) -> str | None:
        """Returns the same as `owner`, but makes no identity: None if there is none, or if it is damaged."""
        try:
            return read_regular(self._owner_path).decode()
        except OSError:
            with contextlib.suppress(RecordDamagedError):
                return self.read_identity()
            return None

    def ownership(self) -> Ownership:
        """Reads what decides whether a record belongs to this home, or to the home that it is a copy of."""
        adopted = None
        with contextlib.suppress(RecordDamagedError):
            adopted = read_file(self._adopted_path, AdoptedRecord)
        return Ownership(self.read_owner(), adopted.identities if adopted else ())

    def adopt(self, identities: Iterable[str]) -> None:
        """Declares that what was recorded under these identities belongs to this home, which has been moved."""
        known = self.ownership().adopted
        all_of_it = AdoptedRecord(identities=list(dict.fromkeys([*known, *identities, self.identity()])))
        write_file(self._adopted_path, all_of_it)

    def stand_for(self, owner: str) -> None:
        """Makes this a spool for the home of this identity."""
        write_atomically(self._owner_path, owner.encode())

    def create_trial(self) -> TrialFolder:
        """Makes the folder of a new trial. Ids rise, and no id is used twice."""
        return TrialFolder(self.root, self._make_numbered(self.runs))

    def folder(self, trial_id: int) -> TrialFolder:
        """Returns the folder that a trial of this id has, or would have."""
        return TrialFolder(self.root, trial_id)

    def trial(self, trial_id: int) -> TrialFolder:
        """Returns the folder of an existing trial. Raises `TrialNotFoundError`."""
        folder = self.folder(trial_id)
        if not folder.exists():
            raise TrialNotFoundError(trial_id, self.root)
        return folder

    def trial_ids(self, *, include_deleted: bool = False) -> list[int]:
        return [
            trial_id
            for trial_id in numbered_entries(self.runs)
            if include_deleted or TrialFolder(self.root, trial_id).exists()
        ]

    def trial_changes(self) -> dict[int, int]:
        """Returns the times, in ns, at which files were last added to the trials' folders, or removed or replaced."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.runs) as entries:
            return {int(each.name): each.stat().st_mtime_ns for each in entries if ID.fullmatch(each.name)}
        return {}

    def experiment_ids(self, *, include_unfinished: bool = False) -> list[int]:
        """Returns the ids of the experiments; also of those that are being submitted if `include_unfinished`."""
        return numbered_entries(self.experiments) if include_unfinished else experiment_ids(self.root)

    def experiment_folder(self, experiment_id: int) -> ExperimentFolder:
        """Returns the folder that an experiment of this id has, or would have."""
        return ExperimentFolder(self.root, experiment_id)

    def experiment(self, experiment_id: int) -> ExperimentFolder:
        """Returns the folder of an existing experiment. Raises `ExperimentNotFoundError`."""
        folder = self.experiment_folder(experiment_id)
        if not exists(folder.record_path):
            raise ExperimentNotFoundError(experiment_id, self.root)
        return folder

    def find_experiment(self, name: str) -> ExperimentFolder | None:
        """Returns the experiment that is registered under this name, or None. Raises `RecordDamagedError`."""
        return find_experiment(self.root, check_name("the experiment's name", name))

    def allot_experiment(self) -> ExperimentFolder:
        """Makes an empty folder, which becomes an experiment when its record is written."""
        return ExperimentFolder(self.root, self._make_numbered(self.experiments))

    def new_experiment(self, name: str) -> ExperimentFolder:
        """Makes an experiment of this name. Until it is registered, it is found only by its id."""
        folder = self.allot_experiment()
        try:
            folder.write(ExperimentRecord(experiment_id=folder.experiment_id, name=name, created=time.time()))
        except OSError:
            folder.delete()  # the record may be there although the disk has refused it
            raise
        return folder

    def find_or_create_experiment(self, name: str) -> ExperimentFolder:
        """Finds or makes the experiment of this name. Processes that do so at the same time get the same experiment.

        Raises `RecordDamagedError` if it cannot be told whether there is one.
        """
        while (found := self.find_experiment(name)) is None:
            candidate = self.new_experiment(name)
            try:
                candidate.register()
                return candidate
            except FileExistsError:
                candidate.delete()
            except OSError:
                if not name_path(self.root, name).exists():
                    # It could not be found by its name, and the next call would make another one.
                    candidate.delete()
                raise
        return found

    def _make_numbered(self, parent: Path) -> int:
        """Makes a directory whose name is the next id. `mkdir` gives each id to only one process."""
        number = max(numbered_entries(parent), default=0) + 1
        while True:
            try:
                make_directory(parent / str(number))
                return number
            except FileExistsError:
                number += 1
            except OSError as error:
                raise HomeNotWritableError(self.root, explained(error).strerror or str(error)) from error

    def code_archive(self, sha256: str) -> Path:
        """Returns the path of the archive of an experiment's code."""
        return self.code / f"{sha256}.tar.gz"

    def read_job(self, name: str) -> JobRecord | None:
        """Reads what `write_job` has recorded of a scheduler's job."""
        return read_file(self._job_path(name), JobRecord)

    def write_job(self, record: JobRecord) -> None:
        make_directory(self.jobs, exist_ok=True)
        write_file(self._job_path(record.job), record)

    @contextlib.contextmanager
    def lock_job(self, name: str) -> Iterator[None]:
        """Holds the lock of a job's record. Waits some seconds for another process, then raises `BlockingIOError`."""
        make_directory(self.jobs, exist_ok=True)
        lock = once_free(lambda: AliveLock(self._job_path(name).with_suffix(".lock")), _LOCK_WAIT_S)
        try:
            yield
        finally:
            lock.release()

    def _job_path(self, name: str) -> Path:
        return self.jobs / f"{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()}.json"

    def _check_format(self) -> None:
        try:
            record = read_file(self.record, HomeRecord)
        except NotADirectoryError as error:
            raise HomeNotWritableError(self.root, "it is not a directory") from error
        except RecordDamagedError as error:
            logger.warning("%s cannot be read (%s): delete it, and it is written again", error.path, error.reason)
            return
        if record is not None and record.format > FORMAT:
            raise HomeTooNewError(self.root, record.format, FORMAT)


def _with_checksum(drawn: str) -> bytes:
    return b"%08x-%b" % (google_crc32c.value(drawn.encode()), drawn.encode())


def _read_identity(path: Path) -> str:
    content = read_regular(path)
    identity = content.decode(errors="replace")
    if content != _with_checksum(identity.partition("-")[2]):
        raise RecordDamagedError(path, "it has a wrong checksum")
    return identity
