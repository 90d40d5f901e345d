"""The errors of Core SDK.

    CoreSDKError
    ├── HomeError                     the folder of all records
    │   ├── HomeNotWritableError
    │   ├── HomeTooNewError
    │   └── RecordDamagedError
    ├── AttemptError                  one execution of a trial's script
    │   ├── AttemptClaimedError
    │   ├── TrialRunningError
    │   ├── TrialNotRunningError
    │   ├── PausedError (ValueError)
    │   ├── NothingToResumeError
    │   └── RunInfoError
    ├── JournalError                  the record file of one attempt
    │   ├── JournalClosedError
    │   ├── JournalForkedError
    │   └── ReportsDroppedError
    ├── CheckpointError               files, metadata and manifest under one id
    │   ├── CheckpointNotFoundError
    │   ├── CheckpointDamagedError
    │   ├── CheckpointTooNewError
    │   ├── CheckpointNotStoredError
    │   ├── NotEnoughSpaceError
    │   ├── StorageNotWritableError
    │   └── UnknownStorageError (ValueError)
    ├── NotFoundError                 an id that the tracker does not know
    │   ├── TrialNotFoundError
    │   └── ExperimentNotFoundError
    ├── IndexTooNewError              the tracker's rebuildable database
    └── MissingDependencyError        an optional library
    InvalidMetricError (ValueError)   a report that cannot be kept exactly
    ├── DuplicateMetricError
    └── InvalidNameError
    ReservedNameError (ValueError)    a checkpoint file that would shadow ours
    UnsafePathError (ValueError)      an id or file name that would leave its directory
    InvalidHP (Exception)             raised by the user: these hyperparameters cannot be trained

A caller's mistake is a `ValueError` or `TypeError`; a failure of the world is a `CoreSDKError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class CoreSDKError(Exception):
    """A failure of the world around the training script."""


class HomeError(CoreSDKError):
    """The home, which holds all records, cannot be used."""


class HomeNotWritableError(HomeError):
    def __init__(self, home: Path, reason: str) -> None:
        self.home = home
        super().__init__(
            f"cannot write to the home {home}: {reason}. "
            "Set CORE_SDK_HOME to a directory that you may write to, or correct its permissions."
        )


class HomeTooNewError(HomeError):
    def __init__(self, home: Path, format_found: int, format_known: int) -> None:
        self.home = home
        super().__init__(
            f"the home {home} has format {format_found}, of a newer Core SDK; this one knows formats up to "
            f"{format_known}. Upgrade with `pip install --upgrade core-sdk`, or set CORE_SDK_HOME to another directory."
        )


class RecordDamagedError(HomeError):
    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"{path} cannot be read: {reason}. Restore it from a copy, or delete what it describes.")


class AttemptError(CoreSDKError):
    """An attempt, one execution of a trial's script, cannot start or stop as asked."""


class AttemptClaimedError(AttemptError):
    def __init__(self, trial_id: int, attempt: int) -> None:
        self.trial_id = trial_id
        self.attempt = attempt
        super().__init__(
            f"attempt {attempt} of trial {trial_id} has been claimed already: init() was called twice for it, by two "
            "processes or twice in one. Call init() once per attempt; unset CORE_SDK_RUN_INFO in processes that are "
            "trials of their own."
        )


class TrialRunningError(AttemptError):
    def __init__(self, trial_id: int, attempt: int, action: str) -> None:
        self.trial_id = trial_id
        super().__init__(
            f"cannot {action} trial {trial_id}: its attempt {attempt} is running. "
            f"Pause it first with `core-sdk trial pause {trial_id}`."
        )


class TrialNotRunningError(AttemptError):
    def __init__(self, trial_id: int, action: str) -> None:
        self.trial_id = trial_id
        super().__init__(
            f"cannot {action} trial {trial_id}: it is not running. "
            f"`core-sdk trial describe {trial_id}` shows how it ended."
        )


class PausedError(AttemptError, ValueError):
    """Somebody waits for the end of what is paused."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is paused and will not end by itself. Continue it with `core-sdk trial resume`, then wait again."
        )


class NothingToResumeError(AttemptError):
    def __init__(self, trial_id: int, reason: str) -> None:
        self.trial_id = trial_id
        super().__init__(f"cannot start trial {trial_id} again: {reason}.")


class RunInfoError(AttemptError):
    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"CORE_SDK_RUN_INFO names {path}, which cannot be used: {reason}. "
            "Unset it to run the script on its own, or start the script with `core-sdk run`."
        )


class JournalError(CoreSDKError):
    """The journal of an attempt cannot take records."""


class JournalClosedError(JournalError):
    def __init__(self, path: Path) -> None:
        super().__init__(f"the journal {path} is closed: report while the Context is open.")


class JournalForkedError(JournalError):
    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the journal {path} belongs to the parent process: a forked child (a data-loader worker, say) cannot "
            "report. Send the values to the process that called init()."
        )


class ReportsDroppedError(JournalError):
    def __init__(self, path: Path, num_dropped: int, reason: str) -> None:
        self.path = path
        self.num_dropped = num_dropped
        super().__init__(
            f"{num_dropped} records could not be written to {path} and are lost: {reason}. "
            "All other records of the attempt are kept. Free space, or set CORE_SDK_HOME to another disk."
        )


class CheckpointError(CoreSDKError):
    """A checkpoint cannot be stored or read."""


class CheckpointNotFoundError(CheckpointError):
    def __init__(self, storage_id: str, where: str) -> None:
        self.storage_id = storage_id
        super().__init__(
            f"there is no checkpoint {storage_id!r} in {where}. `core-sdk checkpoint list` shows those that exist."
        )


class CheckpointDamagedError(CheckpointError):
    """`file` is the file's name inside the checkpoint."""

    def __init__(self, storage_id: str, file: str, problem: str) -> None:
        self.storage_id = storage_id
        self.file = file
        self.problem = problem
        super().__init__(
            f"checkpoint {storage_id} is damaged: {file!r} {problem}. Restore an earlier checkpoint; "
            f"`core-sdk checkpoint verify {storage_id}` checks every file."
        )


class CheckpointTooNewError(CheckpointError):
    def __init__(self, storage_id: str, format_found: int, format_known: int) -> None:
        self.storage_id = storage_id
        super().__init__(
            f"checkpoint {storage_id} has format {format_found}, of a newer Core SDK; this one knows formats up to "
            f"{format_known}. Upgrade with `pip install --upgrade core-sdk`."
        )


class CheckpointNotStoredError(CheckpointError):
    """The disk refused a file of the checkpoint; nothing of it is kept."""

    def __init__(self, storage_id: str, where: str, reason: str) -> None:
        self.storage_id = storage_id
        super().__init__(
            f"checkpoint {storage_id} was not stored in {where}: {reason}. Earlier checkpoints are untouched; "
            "correct the cause, or choose another checkpoint_storage."
        )


class NotEnoughSpaceError(CheckpointError):
    def __init__(self, directory: Path, needed_bytes: int, free_bytes: int) -> None:
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        super().__init__(
            f"{directory} has {free_bytes:,} bytes free and the checkpoint needs {needed_bytes:,}. "
            "Free space or choose another directory; nothing is kept of the checkpoint there."
        )


class StorageNotWritableError(CheckpointError):
    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"checkpoints cannot be stored in {where}: {reason}. "
            "Choose another checkpoint_storage, or correct the directory's permissions."
        )


class UnknownStorageError(CheckpointError, ValueError):
    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        super().__init__(f"the checkpoint storage {url!r} cannot be opened: {reason}.")


class NotFoundError(CoreSDKError):
    """The tracker does not know an id."""


class TrialNotFoundError(NotFoundError):
    def __init__(self, trial_id: int, home: Path) -> None:
        self.trial_id = trial_id
        super().__init__(f"there is no trial {trial_id} in {home}. `core-sdk trial list` shows those that exist.")


class ExperimentNotFoundError(NotFoundError):
    def __init__(self, experiment: int | str, home: Path) -> None:
        super().__init__(
            f"there is no experiment {experiment!r} in {home}. `core-sdk experiment list` shows those that exist."
        )


class IndexTooNewError(CoreSDKError):
    def __init__(self, database: str, revision: str) -> None:
        super().__init__(
            f"the index {database} has schema revision {revision!r}, made by a newer Core SDK. Upgrade Core SDK, or "
            "run `core-sdk index rebuild` to make it anew from the journals."
        )


class MissingDependencyError(CoreSDKError, ImportError):
    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs {library}: pip install "core-sdk[{extra}]"')


class InvalidMetricError(ValueError):
    """A report holds a value that cannot be kept exactly; nothing of it was recorded."""

    def __init__(self, group: str, name: object, problem: str) -> None:
        self.group = group
        self.name = name
        super().__init__(f"metric {name!r} of group {group!r} {problem}")


class DuplicateMetricError(InvalidMetricError):
    def __init__(self, group: str, names: Sequence[str], steps_completed: int) -> None:
        self.steps_completed = steps_completed
        ValueError.__init__(
            self,
            f"{', '.join(map(repr, names))} of group {group!r} was reported before at "
            f"steps_completed={steps_completed}. Report each metric once per step; "
            "count steps over the whole training, not per epoch.",
        )
        self.group = group
        self.name = names[0]


class InvalidNameError(InvalidMetricError):
    def __init__(self, what: str, name: object, problem: str) -> None:
        ValueError.__init__(self, f"{what} {name!r} {problem}")
        self.name = name


class ReservedNameError(ValueError):
    def __init__(self, file: str) -> None:
        self.file = file
        super().__init__(f"a checkpoint cannot hold a file {file!r}: the name is Core SDK's own. Rename the file.")


class UnsafePathError(ValueError):
    def __init__(self, what: str, name: object, problem: str) -> None:
        self.name = name
        super().__init__(f"{what} {name!r} {problem}")


class InvalidHP(Exception):
    """Raise inside the Context to say that these hyperparameters cannot be trained.

    The trial ends as completed without an error, and a search replaces it.
    """

    def __init__(self, msg: str = "...") -> None:
        if not isinstance(msg, str):
            raise TypeError(f"InvalidHP takes a message, not {type(msg).__name__}")
        super().__init__(msg)
        self.msg = msg
