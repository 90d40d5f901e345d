"""The errors of Core SDK.

    CoreSDKError
    ├── HomeError                             the folder of all records
    │   ├── HomeNotWritableError
    │   ├── HomeTooNewError
    │   ├── HomesOnlyReadError                what belongs to others, of several homes
    │   └── RecordDamagedError
    ├── AttemptError                          one execution of a trial's script
    │   ├── AttemptClaimedError
    │   ├── WriterRefusedError
    │   ├── TrialRunningError
    │   ├── TrialCompletedError
    │   ├── TrialNotRunningError
    │   ├── PausedError (ValueError)
    │   └── NothingToResumeError
    ├── CommandError                          a command that cannot be started
    ├── SlotError                             the slots of this machine
    │   └── SlotsTakenError
    ├── MasterError                           the process that runs a home's experiments
    │   ├── MasterRefusedError (ValueError)
    │   └── MasterSilentError
    ├── SlurmError                            Slurm has refused something, or does not answer
    ├── PlacementError (ValueError)           a scheduler has not started one launcher on each node
    ├── JournalError                          the record file of one attempt
    │   └── ReportsDroppedError
    ├── CheckpointError                       files, metadata and manifest under one id
    │   ├── CheckpointNotFoundError
    │   ├── CheckpointDamagedError
    │   ├── CheckpointTooNewError
    │   ├── CheckpointNotStoredError
    │   ├── GraceExceededError                (a save in the background, cut off by a stop)
    │   ├── CheckpointProtectedError
    │   ├── StateMismatchError                (a checkpoint of another model, say)
    │   ├── NotEnoughSpaceError
    │   └── StorageError                      the place where checkpoints lie cannot be used
    │       ├── UnknownStorageError (ValueError)
    │       ├── StorageUnreachableError
    │       ├── BucketNotFoundError
    │       ├── CredentialsMissingError
    │       ├── CredentialsRejectedError
    │       └── StoragePermissionError
    ├── ChannelError                          what carries objects between ranks
    │   ├── JoinError                         the ranks did not come together
    │   │   ├── RanksMissingError
    │   │   ├── ContradictoryRanksError (ValueError)
    │   │   └── SeveralRanksError (ValueError)
    │   ├── RankFailedError                   another rank raised an error
    │   ├── RankDiedError
    │   ├── RankLeftError
    │   └── CollectiveTimeoutError
    ├── WorkerError (RuntimeError)            a worker group, or one of its workers
    │   ├── WorkerFailedError                 a call raised an error on a worker
    │   ├── WorkerDiedError
    │   ├── WorkersNotStartedError
    │   ├── NodeLostError                     the node of a worker or an attempt does not answer
    │   ├── RayClusterError                   a Ray cluster that cannot be used
    │   ├── CallTimeoutError (TimeoutError)
    │   ├── NotPicklableError (TypeError)
    │   └── TrainingFailedError               what `TorchTrainer.fit()` raises
    ├── NotFoundError                         an id that the tracker does not know
    │   ├── TrialNotFoundError
    │   ├── ExperimentNotFoundError
    │   ├── ModelNotFoundError
    │   ├── StudyNotFoundError                a study, or the try of one
    │   └── NotRecordedError                  a metric, a group or an attempt
    ├── AlreadyTriedError                     something like it was tried, so that nothing was begun
    ├── WorkspaceError                        a workspace on a server, to which records are sent
    │   ├── WorkspaceUnreachableError
    │   ├── WorkspaceRefusedError
    │   └── UnknownWorkspaceError (ValueError)
    ├── WorkspaceRequestError                 what is asked of the home that has sent a trial to a workspace
    ├── ExperimentError                       a submitted experiment
    │   └── CodeDamagedError
    ├── TextChangedError                      notes or a description, which somebody else has changed
    ├── NothingToDrawError                    a chart without a number
    ├── NoMasterError (NotImplementedError)   a call of the predecessor's that needs its own master
    ├── DataError (ValueError)                the data of a training, in their order
    │   └── NotExactError
    └── MissingDependencyError (ImportError)  an optional library
    InvalidConfigError (ValueError)           an experiment's configuration that cannot be used
    InvalidMetricError (ValueError)           a report that cannot be kept exactly
    ├── DuplicateMetricError
    └── InvalidNameError
    MediaError (ValueError)                   a value of `core_sdk.media` that cannot be made
    └── MediaTooLargeError
    CheckpointConflictError (ValueError)      ranks contradict each other in one checkpoint
    CodeDirectoryError (ValueError)           a directory that cannot become an experiment's code
    AmbiguousNameError (ValueError)           a name that several experiments have
    NameTakenError (ValueError)               two experiments, or models, of one name could not be told apart
    UnsafePathError (ValueError)              an id or file name that would leave its directory
    InvalidHP (Exception)                     raised by the user: these hyperparameters cannot be trained

A caller's mistake is a `ValueError` or `TypeError`; a failure of the world is a `CoreSDKError`.
"""

from __future__ import annotations

import errno
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_MAX_DIFFERENCES = 5


class CoreSDKError(Exception):
    """A failure of the world around the training script. It can be pickled, for a process pool or another rank."""

    def __reduce__(self) -> tuple[object, ...]:
        # Unpickling an exception calls its class with `args`, which hold only the message, but our classes take data.
        return _unpickled, (type(self), str(self), self.__dict__)


def _unpickled(kind: type[CoreSDKError], message: str, attributes: dict[str, object]) -> CoreSDKError:
    error = kind.__new__(kind, message)
    error.__dict__.update(attributes)
    return error


class HomeError(CoreSDKError):
    """The home, which holds all records, cannot be used."""


class HomeNotWritableError(HomeError):
    def __init__(self, home: Path, reason: str) -> None:
        self.home = home
        self.reason = reason
        super().__init__(
            f"cannot write to the home {home}: {reason}. Correct this, or set CORE_SDK_HOME to another directory."
        )


class HomeTooNewError(HomeError):
    def __init__(self, home: Path, format_found: int, format_known: int) -> None:
        self.home = home
        self.format_found = format_found
        self.format_known = format_known
        super().__init__(
            f"the home {home} has format {format_found}; this Core SDK knows formats up to {format_known}. Install "
            "a newer Core SDK, or set CORE_SDK_HOME to another directory."
        )


class HomesOnlyReadError(HomeError):
    """A change was asked for in a home of somebody else, or in several homes at once that are read as one."""

    def __init__(self, homes: str, message: str = "") -> None:
        self.homes = homes
        super().__init__(
            message
            or f"the homes {homes} are read as one, where this cannot be changed: set CORE_SDK_HOME to one of them"
        )

    @classmethod
    def foreign(cls, home: Path, what: str, owner: str) -> HomesOnlyReadError:
        return cls(str(home), f"{what} lies in the home {home}, which is {owner}'s: only {owner} can change it")


class RecordDamagedError(HomeError):
    def __init__(self, path: Path, reason: str, advice: str = "") -> None:
        self.path = path
        self.reason = reason
        advice = advice or "Restore it from a copy, or delete what it describes."
        super().__init__(f"{path} cannot be read: {reason}. {advice}")

    @classmethod
    def forbidden(cls, path: Path, error: PermissionError) -> RecordDamagedError:
        """A record that this user may not read, such as one of a training that root has started."""
        return cls(path, error.strerror or str(error), "Its owner can give it to you (`chown`), or to all (`chmod`).")


class AttemptError(CoreSDKError):
    """An attempt, one execution of a trial's script, cannot start or stop as asked."""

    @classmethod
    def bad_run_info(cls, path: Path, reason: str) -> AttemptError:
        return cls(
            f"CORE_SDK_RUN_INFO names {path}, which cannot be used: {reason}. Unset it to run the script on its own, "
            "or start the script with `core-sdk run`."
        )

    @classmethod
    def in_slurm(cls, trial_id: int, action: str, job_id: str, advice: str) -> AttemptError:
        return cls(f"cannot {action} trial {trial_id} here: it runs in Slurm, as job {job_id}. {advice}.")


class AttemptClaimedError(AttemptError):
    def __init__(self, trial_id: int, attempt: int) -> None:
        self.trial_id = trial_id
        self.attempt = attempt
        super().__init__(
            f"attempt {attempt} of trial {trial_id} has been claimed already, by another process that still runs. "
            "Unset CORE_SDK_RUN_INFO in processes that are trials of their own; ranks of one trial need "
            "init(distributed=…)."
        )


class WriterRefusedError(AttemptError):
    """A program cannot report about a trial under the name that it wants."""

    def __init__(self, trial_id: int, writer: str, reason: str) -> None:
        self.trial_id = trial_id
        self.writer = writer
        super().__init__(f"{writer!r} cannot write to trial {trial_id}: {reason}")


class TrialRunningError(AttemptError):
    def __init__(self, trial_id: int, attempt: int, action: str, *, is_stopping: bool = False) -> None:
        self.trial_id = trial_id
        self.is_stopping = is_stopping
        """Whether it was asked to stop, and has not ended yet."""
        what_to_do = (
            f"was asked to stop, and has not ended yet. `core-sdk trial pause {trial_id} --wait` waits for its end."
            if is_stopping
            else f"is running. Pause it first with `core-sdk trial pause {trial_id}`."
        )
        self.attempt = attempt
        super().__init__(f"cannot {action} trial {trial_id}: its attempt {attempt} {what_to_do}")


class TrialCompletedError(AttemptError):
    """A completed trial is not resumed.

    A resume from its newest checkpoint would supersede `num_hidden` of its reports.
    """

    def __init__(self, trial_id: int, num_hidden: int) -> None:
        self.trial_id = trial_id
        self.num_hidden = num_hidden
        hidden = f" and would hide {num_hidden:,} of its reports" if num_hidden else ""
        super().__init__(
            f"trial {trial_id} is completed. Resuming it runs its command again{hidden}: to do that, `core-sdk trial "
            f"resume {trial_id} --again`. `core-sdk trial continue {trial_id}` begins a new trial from its checkpoint. "
            f"`core-sdk run --trial {trial_id} --writer NAME -- …` starts a program that only reports about it."
        )


class TrialNotRunningError(AttemptError):
    def __init__(self, trial_id: int, action: str) -> None:
        self.trial_id = trial_id
        super().__init__(
            f"cannot {action} trial {trial_id}: it is not running. `core-sdk trial describe {trial_id}` shows how it "
            "ended."
        )


class PausedError(AttemptError, ValueError):
    """A call waits for the end of a trial or an experiment that is paused."""

    def __init__(self, what: str, command: str = "core-sdk trial resume") -> None:
        """`command` continues it."""
        self.command = command
        super().__init__(
            f"{what} is paused, and does not end by itself. Continue it with `{command}`, then wait again."
        )


class NothingToResumeError(AttemptError):
    def __init__(self, trial_id: int, reason: str) -> None:
        self.trial_id = trial_id
        self.reason = reason
        super().__init__(f"cannot start trial {trial_id} again: {reason}.")


class CommandError(CoreSDKError):
    """The command of an attempt cannot be started. `exit_status` is what a shell or a command then ends with."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        self.exit_status = exit_status
        super().__init__(message)

    @classmethod
    def not_executable(cls, program: str, reason: str) -> CommandError:
        return cls(
            f"{program!r} cannot be executed: {reason}. For a Python script put the interpreter before it: core-sdk "
            "run -- python SCRIPT",
            exit_status=126,
        )


class SlotError(CoreSDKError):
    """Slots of this machine cannot be taken."""


class SlotsTakenError(SlotError):
    def __init__(self, obstacles: str) -> None:
        super().__init__(f"{obstacles}. `core-sdk run --slots` and `core-sdk trial resume` wait for their turn.")


class MasterError(CoreSDKError):
    """The master cannot be reached, or refuses a request."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the master of this home: {reason.removesuffix('.')}.")


class MasterRefusedError(MasterError, ValueError):
    """The master works, but can never do what was requested."""


class MasterSilentError(MasterError):
    """The master lives, but does not answer."""

    def __init__(self, pid: int | None, command: str, waited_s: float, *, is_suspended: bool) -> None:
        who = "it" if pid is None else f"process {pid}" + (f" ({command})" if command else "")
        advice = (
            f", and is suspended. `kill -CONT {pid}` lets it go on"
            if is_suspended
            else f". `kill -9 {pid}` ends it; trials go on, and the next command starts another master"
        )
        self.pid = pid
        self.is_suspended = is_suspended
        super().__init__(f"{who} has not answered for {waited_s:.0f} s{advice if pid else ''}")


class SlurmError(CoreSDKError):
    """Slurm has refused what it was asked for, or does not answer."""

    def __init__(self, problem: str, reason: str, advice: str = "") -> None:
        self.reason = reason.removesuffix(".")
        super().__init__(f"{problem}: {self.reason}.{advice and f' {advice}.'}")


class PlacementError(CoreSDKError, ValueError):
    """A scheduler has not started one launcher on each node of the training; the message says what to change."""


class JournalError(CoreSDKError):
    """The journal of an attempt cannot take records."""

    @classmethod
    def closed(cls, path: Path) -> JournalError:
        return cls(
            f"the journal {path} is closed: the Context was closed, or no variable held it. Report inside `with "
            "core_sdk.core.init() as core_context:`."
        )

    @classmethod
    def forked(cls, path: Path) -> JournalError:
        return cls(
            f"the journal {path} belongs to the parent process: a forked child, such as a data-loader worker, cannot "
            "report. Send the values to the process that called init(). A script that makes itself a daemon calls "
            "init() in the daemon, after the last fork."
        )


class ReportsDroppedError(JournalError):
    def __init__(self, path: Path, num_dropped: int, error: OSError) -> None:
        self.path = path
        self.num_dropped = num_dropped
        rest = "All other records of the attempt are kept. Correct this, or set CORE_SDK_HOME to another disk."
        if error.errno == errno.ENOENT:
            rest = (
                "The records before them went with the file: keep a home in its place until its trainings have ended."
            )
        elif error.errno == errno.EBADF:
            rest = "All other records of the attempt are kept. Let the script close only what it has opened."
        self.error = error
        super().__init__(f"{num_dropped} records could not be written to {path} and are lost: {error}. {rest}")


class CheckpointError(CoreSDKError):
    """A checkpoint cannot be stored or read."""


class CheckpointNotFoundError(CheckpointError):
    def __init__(self, storage_id: str, where: str) -> None:
        self.storage_id = storage_id
        self.where = where
        super().__init__(
            f"there is no checkpoint {storage_id!r} in {where}. `core-sdk checkpoint list` shows those that exist."
        )


class CheckpointDamagedError(CheckpointError):
    """A stored checkpoint is damaged. `file` is the name of the bad file inside the checkpoint."""

    def __init__(self, storage_id: str, file: str, problem: str) -> None:
        self.storage_id = storage_id
        self.file = file
        self.problem = problem
        super().__init__(
            f"checkpoint {storage_id} is damaged: {file!r} {problem}. Restore an earlier checkpoint; `core-sdk "
            f"checkpoint verify {storage_id}` checks every file."
        )


class CheckpointTooNewError(CheckpointError):
    def __init__(self, storage_id: str, format_found: int, format_known: int) -> None:
        self.storage_id = storage_id
        self.format_found = format_found
        self.format_known = format_known
        super().__init__(
            f"checkpoint {storage_id} has format {format_found}, of a newer Core SDK; this one knows formats up to "
            f"{format_known}. Install a newer Core SDK."
        )


class CheckpointNotStoredError(CheckpointError):
    """The disk refused a file of the checkpoint, or its record. Nothing of the checkpoint is kept."""

    def __init__(self, storage_id: str, where: str, reason: str) -> None:
        self.storage_id = storage_id
        self.where = where
        self.reason = reason
        super().__init__(
            f"checkpoint {storage_id} was not stored in {where}: {reason}. Earlier checkpoints are untouched; correct "
            "the cause, or choose another checkpoint_storage."
        )


class GraceExceededError(CheckpointError):
    """A save in the background did not end in time after the process was asked to stop."""

    def __init__(self, storage_id: str, taken_s: float, grace_s: float) -> None:
        self.storage_id = storage_id
        self.taken_s = taken_s
        self.grace_s = grace_s
        super().__init__(
            f"checkpoint {storage_id} was given up after {taken_s:.1f} s: the process was asked to stop, and has "
            f"{grace_s:g} s to end. Earlier checkpoints are untouched; allow more with CORE_SDK_GRACE_S."
        )


class CheckpointProtectedError(CheckpointError):
    """The checkpoint was not deleted. `reasons` say what needs it."""

    def __init__(
        self, storage_id: str, reasons: Sequence[str], can_be_forced: bool, is_registered: bool = False
    ) -> None:
        self.storage_id = storage_id
        self.reasons = tuple(reasons)
        self.can_be_forced = can_be_forced
        if is_registered:
            advice = "`core-sdk model delete` takes a version, or a whole model, out of the registry"
        elif can_be_forced:
            advice = f"`core-sdk checkpoint unpin {storage_id}` removes a pin; --force deletes it in any case"
        else:
            advice = "Wait until that has ended, or stop it"
        super().__init__(f"checkpoint {storage_id} is not deleted: {'; '.join(reasons)}. {advice}.")


class StateMismatchError(CheckpointError):
    """The objects of the script do not fit a checkpoint. A part of the checkpoint may have been loaded."""

    def __init__(
        self,
        what: str,
        differences: Sequence[str],
        advice: str = "Build it with the hyperparameters of the checkpoint, or begin a new trial",
    ) -> None:
        self.differences = tuple(differences)
        num_more = len(differences) - _MAX_DIFFERENCES
        more = f"; and {num_more} more" if num_more > 0 else ""
        super().__init__(
            f"the checkpoint does not fit {what} of the script: {'; '.join(differences[:_MAX_DIFFERENCES])}{more}. "
            f"{advice}."
        )


class NotEnoughSpaceError(CheckpointError):
    def __init__(self, directory: Path, needed_bytes: int, free_bytes: int, *, has_free_inodes: bool = True) -> None:
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        self.directory = directory
        lack = (
            f"has {free_bytes:,} bytes free and the checkpoint needs {needed_bytes:,}. Nothing of it was kept there. "
            "Free space"
            if has_free_inodes
            else "has no inode free: its file system takes no more files. Nothing of the checkpoint was kept there. "
            "Delete files"
        )
        super().__init__(f"{directory} {lack}, for example by `core-sdk checkpoint gc`, or choose another directory.")


class StorageError(CheckpointError):
    """A storage of checkpoints cannot be used. This says nothing about the checkpoints in it."""

    @classmethod
    def not_writable(cls, where: str, reason: str) -> StorageError:
        return cls(
            f"checkpoints cannot be stored in {where}: {reason}. Correct this, or choose another checkpoint_storage."
        )

    @classmethod
    def refused(cls, where: str, reason: str) -> StorageError:
        """Returns the error for a request that should have worked, and would be refused again."""
        return cls(
            f"the store refused a request for {where}: {reason}. Choose another checkpoint_storage, or correct what it "
            "names."
        )


class UnknownStorageError(StorageError, ValueError):
    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"the checkpoint storage {url!r} cannot be opened: {reason}.")


class StorageUnreachableError(StorageError):
    """The network or the store failed for longer than requests are repeated."""

    def __init__(self, where: str, reason: str, deadline_s: float) -> None:
        self.where = where
        self.reason = reason
        self.deadline_s = deadline_s
        super().__init__(
            f"{where} could not be reached for {deadline_s:g} s: {reason}. Check the network, and the endpoint if one "
            "is set. CORE_SDK_STORAGE_DEADLINE_S sets this time."
        )


class BucketNotFoundError(StorageError):
    def __init__(self, where: str, advice: str) -> None:
        self.where = where
        super().__init__(f"there is no bucket for {where}. Correct the name in checkpoint_storage, or {advice}.")


class CredentialsMissingError(StorageError):
    def __init__(self, where: str, advice: str) -> None:
        self.where = where
        super().__init__(f"there are no credentials for {where}. {advice}.")


class CredentialsRejectedError(StorageError):
    """The credentials of a storage are expired, revoked or wrong."""

    def __init__(self, where: str, reason: str, advice: str) -> None:
        self.where = where
        super().__init__(f"the credentials for {where} were rejected: {reason}. {advice}.")


class StoragePermissionError(StorageError):
    """A permission for a storage is missing. `permission` is the store's own name for it."""

    def __init__(self, where: str, permission: str, reason: str) -> None:
        self.where = where
        self.permission = permission
        super().__init__(
            f"no permission for {where}: {reason}. It needs {permission}. Grant it to the identity that this process "
            "uses, or choose another checkpoint_storage."
        )


class ChannelError(CoreSDKError):
    """The ranks of a trial cannot exchange objects."""


class JoinError(ChannelError):
    """The ranks of a trial did not find each other."""


class RanksMissingError(JoinError):
    def __init__(self, missing: Sequence[int], size: int, timeout_s: float) -> None:
        self.missing = tuple(missing)
        self.timeout_s = timeout_s
        self.size = size
        super().__init__(
            f"{_ranks(missing)} of {size} did not join within {timeout_s:g} s. Look at the output of those ranks: each "
            "must make its DistributedContext, with the same size. join_timeout_s allows more time."
        )


class ContradictoryRanksError(JoinError, ValueError):
    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            f"the ranks contradict each other: {'; '.join(problems)}. Each process needs a rank of its own, and all "
            "the same size; two groups that one process starts side by side need different pub_port numbers."
        )


class SeveralRanksError(JoinError, ValueError):
    """`num_slots` is the number of the trial's slots if its command started one process; None if it started ranks."""

    def __init__(self, num_ranks: int, num_slots: int | None = None) -> None:
        self.num_ranks = num_ranks
        self.num_slots = num_slots
        if num_slots is not None:
            super().__init__(
                f"the trial has {num_slots} slots, and its command has started one process for all of them. Write "
                "`python -m launch.torch_distributed train.py` as the command, which starts a rank on each slot, and "
                'init(distributed="torch") in the script; or ask for one slot (`--slots 1`, or '
                "`resources.slots_per_trial: 1`). A process that uses all slots by itself says so with "
                "init(distributed=DistributedContext())."
            )
            return
        super().__init__(
            f"{num_ranks} ranks were started, and init() was called without a DistributedContext: each would record a "
            'trial of its own. Pass init(distributed="torch"), or a DistributedContext.from_horovod(hvd) or '
            "from_deepspeed(). Where a framework starts the ranks itself (Lightning's Trainer with "
            f"devices={num_ranks}, say), start them with `python -m launch.torch_distributed "
            f"--nproc-per-node={num_ranks} train.py` instead."
        )


class RankFailedError(ChannelError):
    """Another rank has raised an error. `traceback_text` is its traceback."""

    def __init__(self, rank: int, error_text: str, traceback_text: str = "") -> None:
        self.rank = rank
        self.error_text = error_text
        self.traceback_text = traceback_text
        # The quoted traceback is indented, so that nobody takes it for this rank's own.
        quoted = textwrap.indent(traceback_text.rstrip(), "    ")
        where = f"\n\nOn rank {rank}:\n{quoted}" if quoted else ""
        super().__init__(f"rank {rank} failed: {error_text}{where}")


class RankDiedError(ChannelError):
    def __init__(self, rank: int, process: str) -> None:
        self.rank = rank
        self.process = process
        super().__init__(
            f"rank {rank} ({process}) died, or its connection was cut. Look at the end of its output, and start all "
            "ranks again."
        )


class RankLeftError(ChannelError):
    def __init__(self, rank: int, call: str) -> None:
        self.rank = rank
        super().__init__(
            f"rank {rank} has closed its DistributedContext, and this rank calls {call}. Every rank must make the same "
            "calls in the same order."
        )


class CollectiveTimeoutError(ChannelError):
    """A collective call has timed out. `missing` are the ranks that others waited for."""

    def __init__(self, call: str, timeout_s: float, missing: Sequence[int], findings: Sequence[str]) -> None:
        self.missing = tuple(missing)
        self.call = call
        self.timeout_s = timeout_s
        super().__init__(
            f"{call} waited {timeout_s:g} s for {_ranks(missing)}: {'; '.join(findings)}. The timeout_s of the "
            "DistributedContext allows more time."
        )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


class WorkerError(CoreSDKError, RuntimeError):
    """A worker group, or one of its workers, cannot do what it was asked to do."""

    @classmethod
    def ended(cls, action: str, reason: str) -> WorkerError:
        """`reason` follows "the workers of this group", for example: were killed."""
        return cls(f"cannot {action}: the workers of this group {reason}.")


class WorkerFailedError(WorkerError):
    """A call has raised an error on a worker. `traceback_text` is the worker's traceback.

    The worker's exception is the `__cause__`, if it can be unpickled here.
    """

    def __init__(self, rank: int, function: str, error_text: str, traceback_text: str = "") -> None:
        self.rank = rank
        self.function = function
        self.error_text = error_text
        self.traceback_text = traceback_text
        # The quoted traceback is indented, so that nobody takes it for this process's own.
        quoted = textwrap.indent(traceback_text.rstrip(), "    ")
        where = f"\n\nOn worker {rank}:\n{quoted}" if quoted else ""
        super().__init__(f"{function} failed on worker {rank}: {error_text}{where}")


class WorkerDiedError(WorkerError):
    """A worker has died. `cause` follows "worker 1", for example: was killed by SIGKILL."""

    def __init__(
        self,
        rank: int,
        process: str,
        cause: str,
        last_lines: Sequence[str] = (),
        *,
        call: str = "",
        advice: str = "The other workers are ended; restart() starts all of them again.",
    ) -> None:
        """`call` names the call of a trainer that has failed."""
        self.rank = rank
        self.process = process
        self.cause = cause
        self.last_lines = tuple(last_lines)
        quoted = "".join(f"\n    {line}" for line in last_lines)
        ending = f" The end of its stderr:{quoted}" if quoted else ""
        super().__init__(f"{call and f'{call}: '}worker {rank} ({process}) {cause}. {advice}{ending}")


class WorkersNotStartedError(WorkerError):
    def __init__(self, num_workers: int, reason: str) -> None:
        self.num_workers = num_workers
        super().__init__(f"{num_workers} workers could not be started: {reason.removesuffix('.')}.")


class NodeLostError(WorkerError):
    def __init__(self, whose: str) -> None:
        """`whose` names the owner of the node, such as "worker 1"."""
        super().__init__(f"the node of {whose} does not answer: it was lost, or its Ray actor has ended.")


class RayClusterError(WorkerError):
    """A Ray cluster cannot be used. `address` is None for a cluster that the program would have started."""

    def __init__(self, address: str | None, reason: str, advice: str = "") -> None:
        self.address = address
        self.reason = reason.removesuffix(".")
        where = "a Ray cluster" if address is None else f"the Ray cluster at {address}"
        ending = f" {advice}." if advice else ""
        super().__init__(f"{where} cannot be used: {self.reason}.{ending}")


class CallTimeoutError(WorkerError, TimeoutError):
    """A call has not ended in time. `missing` are the ranks that have not answered, which go on."""

    def __init__(self, function: str, timeout_s: float, missing: Sequence[int]) -> None:
        self.missing = tuple(missing)
        ranks = ", ".join(map(str, missing))
        self.function = function
        self.timeout_s = timeout_s
        super().__init__(
            f"{function} has not ended within {timeout_s:g} s on the workers {ranks}. They go on: wait again, or end "
            "them with kill()."
        )


class NotPicklableError(WorkerError, TypeError):
    """An object cannot be pickled. `path` names the argument or the function that it belongs to, if known."""

    def __init__(self, what: str, path: str, error_text: str) -> None:
        self.path = path
        self.error_text = error_text
        where = f" ({path})" if path else ""
        super().__init__(
            f"{what} cannot be pickled{where}: {error_text}. Make this object on the worker instead, and send what it "
            "is made of."
        )


class TrainingFailedError(WorkerError):
    """A training on workers has failed.

    `worker_failures` has the error of the worker that has failed first, by rank: the exception that its function has
    raised, or a `WorkerDiedError`. It is also the `__cause__`.
    """

    def __init__(self, trial_id: int, attempt: int, error_text: str, num_failures: int) -> None:
        self.trial_id = trial_id
        self.attempt = attempt
        self.worker_failures: dict[int, Exception] = {}
        times = "" if num_failures < 2 else f" (after {num_failures} failures; the last one is shown)"
        super().__init__(f"trial {trial_id} has failed in attempt {attempt}{times}: {error_text}")


class NotFoundError(CoreSDKError):
    """The tracker does not know this id."""


class TrialNotFoundError(NotFoundError):
    def __init__(self, trial: int | str, home: Path) -> None:
        """`trial` is an id or a name."""
        self.trial_id = trial if isinstance(trial, int) else 0
        super().__init__(f"there is no trial {trial!r} in {home}. `core-sdk trial list` shows those that exist.")


class ExperimentNotFoundError(NotFoundError):
    def __init__(self, experiment: int | str, home: Path) -> None:
        self.experiment = experiment
        super().__init__(
            f"there is no experiment {experiment!r} in {home}. `core-sdk experiment list` shows those that exist."
        )


class ModelNotFoundError(NotFoundError):
    def __init__(self, model: int | str, home: Path) -> None:
        self.model = model
        super().__init__(f"there is no model {model!r} in {home}. `core-sdk model list` shows those that exist.")


class StudyNotFoundError(NotFoundError):
    """There is no such study, or a trial belongs to none."""

    @classmethod
    def named(cls, name: str, home: Path) -> StudyNotFoundError:
        return cls(f"there is no study {name!r} in the home {home}: `core-sdk study begin` begins one")

    @classmethod
    def here(cls, directory: Path) -> StudyNotFoundError:
        return cls(
            f"no study was begun in the directory {directory}: `core-sdk study begin NAME --metric METRIC` begins one"
        )

    @classmethod
    def of_trial(cls, trial_id: int) -> StudyNotFoundError:
        return cls(f"trial {trial_id} belongs to no try; `core-sdk trial verdict` decides about a trial")


class NotRecordedError(NotFoundError):
    """A metric, a group or an attempt is asked for of which nothing is recorded."""

    def __init__(self, problem: str, heading: str, known: Iterable[object]) -> None:
        """`heading` says what `known` is, which is there instead."""
        self.known = tuple(dict.fromkeys(map(str, known)))
        super().__init__(f"{problem}. {heading}: {', '.join(self.known) or 'none yet'}.")


class AlreadyTriedError(CoreSDKError):
    """Something like it was tried before, so that nothing was begun."""

    def __init__(self, told: str, try_id: int) -> None:
        """`try_id` is what was tried."""
        self.try_id = try_id
        super().__init__(told)


class WorkspaceError(CoreSDKError):
    """A workspace on a server does not do what it was asked. What was recorded stays in the own home."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"the workspace {url} {self._words(reason)}")

    def _words(self, reason: str) -> str:
        return f"does not do this: {reason}"


class WorkspaceUnreachableError(WorkspaceError):
    """The workspace cannot be reached now. It may be later."""

    def _words(self, reason: str) -> str:
        return f"cannot be reached: {reason}"


class WorkspaceRefusedError(WorkspaceError):
    """The workspace does not know the token, or its holder may not do this."""

    def _words(self, reason: str) -> str:
        return f"refuses this: {reason}. Log in again with `core-sdk login {self.url}`"


class UnknownWorkspaceError(WorkspaceError, ValueError):
    """A name that no login has."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        self.known = list(known)
        words = f"there are {', '.join(known)}" if known else "there is none"
        super().__init__(name, f"{words}. `core-sdk login URL` adds one")

    def _words(self, reason: str) -> str:
        return f"is not known: of those that you have logged in to, {reason}"


class WorkspaceRequestError(CoreSDKError):
    """The home that has sent a trial to a workspace does not do what was asked of it, or has not done it yet."""

    def __init__(self, trial_id: int, verb: str, reason: str) -> None:
        self.trial_id = trial_id
        self.verb = verb
        self.reason = reason
        subject, _, name = verb.rpartition(" ")
        of_trial = f"the {subject} of trial" if subject else "trial"
        super().__init__(f"cannot {name} {of_trial} {trial_id} from here: {reason}")


class ExperimentError(CoreSDKError):
    """A submitted experiment cannot begin, go on, or do what is asked of it."""

    experiment_id: int | None = None

    @classmethod
    def of(cls, experiment_id: int, problem: str) -> ExperimentError:
        error = cls(f"experiment {experiment_id} {problem}.")
        error.experiment_id = experiment_id
        return error


class CodeDamagedError(ExperimentError):
    def __init__(self, archive: Path, reason: str) -> None:
        self.archive = archive
        super().__init__(
            f"the code archive {archive} {reason}. Restore it from a copy, or delete it and submit the same directory "
            "again."
        )


class TextChangedError(CoreSDKError):
    """Notes or a description are no longer what the one who changes them has seen; `present` is what they are."""

    def __init__(self, what: str, present: str) -> None:
        self.what = what
        self.present = present
        super().__init__(f"{what} have been changed since you have read them, and stay as they are now.")


class NothingToDrawError(CoreSDKError):
    def __init__(self, problem: str = "there is nothing to draw yet: no report has a number that is finite") -> None:
        super().__init__(f"{problem}.")


class NoMasterError(CoreSDKError, NotImplementedError):
    def __init__(self, call: str, advice: str) -> None:
        self.call = call
        super().__init__(f"{call} is not available here. {advice}.")


class DataError(CoreSDKError, ValueError):
    """The data of a training, or their order, do not fit a position in them."""

    @classmethod
    def changed(cls, what: str, expected: object, found: object, waiver: str | None = None) -> DataError:
        """`waiver` is what to do if the position may mean something else."""
        return cls(
            f"{what} was {expected} and is {found}, so no position in the data means what it meant: train on the data "
            f"of before, or begin a new trial from the checkpoint{'' if waiver is None else f', or {waiver}'}"
        )

    @classmethod
    def other(cls, changes: Sequence[str]) -> DataError:
        return cls(
            f"the data are not those of the checkpoint: {'; '.join(changes)}. Train on the data of before, or let "
            "resumable() go on with other data: data='warn'"
        )


class NotExactError(DataError):
    """A loader cannot be made to continue after a stop with exactly the next sample."""

    def __init__(self, problem: str, remedy: str, waiver: str | None = "pass exact=False") -> None:
        """`waiver` is what to do if the resume need not be exact; None if nothing will do."""
        self.problem = problem
        self.remedy = remedy
        self.waiver = waiver
        alternative = f", or {waiver}, with which a resumed training may repeat or miss samples"
        super().__init__(f"{problem}, so a resume cannot be exact: {remedy}{'' if waiver is None else alternative}")


class MissingDependencyError(CoreSDKError, ImportError):
    def __init__(self, library: str, extra: str, purpose: str) -> None:
        self.library = library
        self.extra = extra
        super().__init__(f"{purpose} needs {library}: {_installation_of(extra)}")


def _installation_of(extra: str) -> str:
    """Returns the command that installs the libraries of an extra, by their own names.

    Until a release is out, the index has no `core-sdk`, and whoever registered the name there would be installed.
    """
    import importlib.metadata  # slow to import

    try:
        requirements = importlib.metadata.requires("core-sdk") or []
    except importlib.metadata.PackageNotFoundError:  # it runs from a directory of sources
        return f"pyproject.toml lists the libraries of the extra {extra!r}"
    of_extra = [text.partition(";") for text in requirements if text.replace('"', "'").endswith(f"extra == '{extra}'")]
    if not of_extra:  # it was installed before there was this extra
        return f"pyproject.toml lists the libraries of the extra {extra!r}"
    return " ".join(["pip install", *(f'"{name.strip()}"' for name, _, _ in of_extra)])


class ConfigProblem(NamedTuple):
    """A problem of a configuration, or a warning to its author.

    `source` is a file, or an override, which has no lines; `path` is dotted, such as `searcher.max_trials`.
    """

    source: str
    line: int | None
    path: str
    problem: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {f'{self.path} {self.problem}'.strip()}"


class InvalidConfigError(ValueError):
    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


class InvalidMetricError(ValueError):
    """A report has a value that cannot be kept exactly; nothing of the report was recorded."""

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
            f"steps_completed={steps_completed}. Report each metric once per step; count steps over the whole "
            "training, not per epoch.",
        )
        self.group = group
        self.name = names[0]


class MediaError(ValueError):
    """An image, an audio or another medium cannot be made from this."""

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        super().__init__(f"this {kind.replace('_', ' ')} {problem}")


class MediaTooLargeError(MediaError):
    def __init__(self, kind: str, size_bytes: int, max_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes
        super().__init__(
            kind,
            f"has {size_bytes} bytes, over {max_bytes}. Report a smaller one, or set CORE_SDK_MAX_MEDIA_MB to the "
            "megabytes that one value may have.",
        )


class InvalidNameError(InvalidMetricError):
    def __init__(self, what: str, name: object, problem: str) -> None:
        ValueError.__init__(self, f"{what} {name!r} {problem}")
        self.name = name


class CheckpointConflictError(ValueError):
    """The ranks of a sharded checkpoint contradict each other; nothing was stored.

    `files` has names in the checkpoint, `metadata` places such as "/optimizer/lr", each with the ranks concerned.
    """

    def __init__(self, files: Mapping[str, Sequence[int]], metadata: Mapping[str, Sequence[int]]) -> None:
        self.files = dict(files)
        self.metadata = dict(metadata)
        problems = []
        if files:
            problems.append(
                f"wrote different files of the same name: {_listed(files)}; put the rank into the name, or write the "
                "file on one rank only"
            )
        if metadata:
            problems.append(
                f"gave different metadata: {_listed(metadata)}; give it on one rank only, or the same on all"
            )
        super().__init__(f"the checkpoint was not stored, because its ranks {', and '.join(problems)}.")


class CodeDirectoryError(ValueError):
    def __init__(self, directory: Path, problem: str) -> None:
        self.directory = directory
        super().__init__(f"the code directory {directory} {problem}")


class AmbiguousNameError(ValueError):
    def __init__(self, name: str, ids: Sequence[int], kind: str = "experiment") -> None:
        self.ids = tuple(ids)
        numbers = ", ".join(map(str, ids))
        self.name = name
        self.kind = kind
        super().__init__(f"several {kind}s are called {name!r}: give the number of one of them: {numbers}")


class NameTakenError(ValueError):
    def __init__(self, name: str, kind: str = "experiment") -> None:
        self.name = name
        self.kind = kind
        super().__init__(f"another {kind} is called {name!r}: choose another name, or delete that {kind}")


def _listed(places: Mapping[str, Sequence[int]], limit: int = 10) -> str:
    texts = [f"{place!r} ({_ranks(ranks)})" for place, ranks in list(places.items())[:limit]]
    rest = len(places) - limit
    return ", ".join([*texts, f"and {rest} more"] if rest > 0 else texts)


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


# Names of 0.1.0 for errors that nobody could handle in different ways.
MetricNotFoundError = NoSuchGroupError = NoSuchMetricError = NotRecordedError
NothingToPlotError = NothingToDrawError
SearcherRunningError = ExperimentError
CodeTooLargeError = CodeDirectoryError
