"""The attempt that a script executes, claimed by its `init()`: one process holds it, for good."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from core_sdk._ground.alive import AliveLock, is_alive
from core_sdk._ground.environment import (
    command_of_this_process,
    has_begun_attempt,
    is_home_spooled,
    is_of_multiprocessing,
    main_script,
)
from core_sdk._ground.files import explained
from core_sdk._ground.records import FORMAT, MAX_SEED, AttemptStarted, ClusterInfo, Ended, TrialRecord, generated_name
from core_sdk._ground.version import __version__
from core_sdk._home.attempts.command import command_here
from core_sdk._home.attempts.definition import Definition, define, describe_experiment, warn_of_change
from core_sdk._home.attempts.jobs import note_trial_of_job
from core_sdk._home.attempts.provisional import settle
from core_sdk._home.attempts.restarts import info_of_next_attempt, is_begun_here
from core_sdk._home.attempts.run_info import as_told, is_restart, names_trial, place_in, with_trial
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.journal import Journal, JournalWriter
from core_sdk.errors import AttemptClaimedError, CommandError, HomeNotWritableError

logger = logging.getLogger("core_sdk.core")


class Attempt(msgspec.Struct, frozen=True):
    """An attempt as one of its ranks holds it; the chief has claimed it for all of them."""

    folder: TrialFolder
    number: int
    info: ClusterInfo
    record: TrialRecord
    start: AttemptStarted
    journal: Journal
    alive: AliveLock | None
    """Held by the chief while the attempt runs."""
    is_home_shared: bool = True
    """Whether this rank sees what the chief records."""
    is_new_trial: bool = False
    """Whether this process has made the trial."""
    starter: tuple[int, int] | None = None
    """The trial and the attempt whose program trains this one too, after its own; None if there is none."""
    writer: str = ""
    """The name under which this process only reports about the attempt, next to the trial's own program."""

    def give_back(self, error: BaseException) -> None:
        """Ends an attempt that not all ranks have joined. A trial that was made for it is removed."""
        ended = Ended(time=time.time(), outcome="error", error=f"the ranks did not begin together: {error}")
        self.journal.append(ended)
        self.journal.close()
        if self.alive is not None:
            self.alive.release()
        if self.is_new_trial:
            self.folder.clear()


def claim_attempt(
    home: Home,
    info: ClusterInfo | None,
    definition: Definition,
    num_ranks: int = 1,
    starter: tuple[int, int] | None = None,
) -> Attempt:
    """Claims the attempt that this process executes for `num_ranks` ranks. `info` is the run info that it was given.

    If an earlier start of its launch or its job has begun a trial, this is the trial's next attempt. Otherwise it is
    the attempt that `info` names, or else the first attempt of a new trial. If the program of that attempt has claimed
    it before, for another training, `info` counts no more, but for the place, and the attempt is its `starter`.

    Raises `AttemptClaimedError` if another program was first, `TrialNotFoundError` if `info` speaks of another home,
    `NothingToResumeError` if a restart finds checkpoints and none can be read, `HomeNotWritableError` if something
    cannot be written: a new trial is then removed.
    """
    told = info_of_next_attempt(home, info, definition.job, definition.steps_completed)
    try:
        if names_trial(told):
            attempt = _claim_given_attempt(home, told, definition)
        else:
            attempt = _claim_first_attempt(home, told or ClusterInfo(), definition, num_ranks, starter)
    except AttemptClaimedError as error:
        if not names_trial(told) or starter is not None or not _has_been_claimed_here(home, error.trial_id):
            raise
        starter = error.trial_id, max(home.trial(error.trial_id).attempts())
        return claim_attempt(home, place_in(told), definition, num_ranks, starter)
    except OSError as error:
        raise HomeNotWritableError(home.root, explained(error).strerror or str(error)) from error
    if not names_trial(info):
        note_trial_of_job(attempt.folder, definition.job)
    elif is_restart(info, attempt.folder.trial_id, attempt.number):
        told = attempt.info
        recorded = with_trial(told, attempt.record, attempt.number, told.latest_checkpoint, told.trial.steps_completed)
        attempt.folder.write_run_info(attempt.number, recorded)
    return replace(attempt, starter=starter)


def _has_been_claimed_here(home: Home, trial_id: int) -> bool:
    """Returns whether the trial's newest attempt is of a training that has ended, or of a process of this program."""
    folder = home.trial(trial_id)
    attempt = max(folder.attempts())
    return is_of_multiprocessing() or not is_alive(folder.alive_path(attempt)) or is_begun_here(folder, attempt)


def _claim_first_attempt(
    home: Home, where: ClusterInfo, definition: Definition, num_ranks: int, starter: tuple[int, int] | None
) -> Attempt:
    folder = home.create_trial()
    try:
        return _start_first_attempt(home, folder, where, definition, num_ranks, starter)
    except BaseException:
        # Nothing half-made may be listed.
        folder.clear()
        raise


def _start_first_attempt(
    home: Home,
    folder: TrialFolder,
    where: ClusterInfo,
    definition: Definition,
    num_ranks: int,
    starter: tuple[int, int] | None,
) -> Attempt:
    first = None if starter is None else home.trial(starter[0]).read_record()
    # The trials of a search are those that it has asked for.
    if first is not None and first.is_named and not first.request_id:
        experiment_id = first.experiment_id
    else:
        experiment_id = home.find_or_create_experiment(definition.name or main_script()).experiment_id
    record = new_record(folder, experiment_id)
    if first is not None:
        _take_over(record, first)
    define(record, definition)
    if first is not None:
        record.name = record.name or f"{first.name or generated_name(first.trial_id, first.created)}.{folder.trial_id}"
    describe_experiment(home, record.experiment_id, definition)
    if first is not None or has_begun_attempt():
        pass  # the command would begin with another trial
    elif num_ranks == 1:
        _write_command(folder)
    else:
        logger.info(
            "trial %d cannot be resumed by `core-sdk trial resume`, since the command of the launcher is not known: "
            "start it with `core-sdk run -- …`",
            folder.trial_id,
        )
    with _claimed(folder, 1) as (journal, alive):
        start = start_record(folder, 1, home.owner())
        journal.append_or_raise(start)
        # Last, since it makes the trial visible.
        folder.write_record(record)
    info = as_told(with_trial(where, record, 1, None, 0))
    return Attempt(folder, 1, info, record, start, journal, alive, is_new_trial=True)


def _claim_given_attempt(home: Home, info: ClusterInfo, definition: Definition) -> Attempt:
    folder = home.trial(info.trial.trial_id)
    number, checkpoint, steps = info.trial.attempt, info.latest_checkpoint, info.trial.steps_completed
    with _claimed(folder, number) as (journal, alive):
        start = start_record(folder, number, home.owner(), latest_checkpoint=checkpoint, resumed_steps=steps)
        start.asked, start.launched = info.asked, info.launched
        journal.append_or_raise(start)
        record = folder.read_record()
        if record.is_defined:
            warn_of_change(record, definition)
        else:
            define(record, definition)
            replaced = None if record.is_named else settle(home, record, definition.name)
            describe_experiment(home, record.experiment_id, definition)
            folder.write_record(record)
            if replaced is not None:
                replaced.discard()
    info = as_told(with_trial(info, record, number, checkpoint, steps))
    return Attempt(folder, number, info, record, start, journal, alive)


def _take_over(record: TrialRecord, first: TrialRecord) -> None:
    """Gives a further trial of a program what its first one was given from outside."""
    record.started_by = first.trial_id
    record.hparams = first.given_hparams
    record.data, record.max_length, record.num_slots = first.data, first.max_length, first.num_slots
    if first.is_seed_given:
        record.seed, record.is_seed_given = first.seed, True


def new_record(folder: TrialFolder, experiment_id: int, seed: int | None = None) -> TrialRecord:
    """Returns the record of a new trial, with the seed that was chosen for it, or a random one."""
    return TrialRecord(
        trial_id=folder.trial_id,
        experiment_id=experiment_id,
        created=time.time(),
        seed=random.SystemRandom().randrange(MAX_SEED + 1) if seed is None else seed,
        is_seed_given=seed is not None,
    )


def start_record(
    folder: TrialFolder,
    attempt: int,
    owner: str,
    rank: int = 0,
    *,
    latest_checkpoint: str | None = None,
    resumed_steps: int = 0,
) -> AttemptStarted:
    """Returns the first record of a journal that this process keeps; `owner` is the home's."""
    return AttemptStarted(
        time=time.time(),
        format=FORMAT,
        trial_id=folder.trial_id,
        attempt=attempt,
        host=socket.gethostname(),
        pid=os.getpid(),
        sdk_version=__version__,
        latest_checkpoint=latest_checkpoint,
        resumed_steps=resumed_steps,
        rank=rank,
        home=owner,
        is_spooled=is_home_spooled(),
    )


def _write_command(folder: TrialFolder) -> None:
    if (argv := command_of_this_process()) is None:
        return
    try:
        folder.write_command(command_here(argv))
    except (FileNotFoundError, CommandError) as error:
        logger.warning(
            "trial %d cannot be resumed by `core-sdk trial resume`: its command cannot be kept (%s)",
            folder.trial_id,
            error,
        )


@contextlib.contextmanager
def _claimed(folder: TrialFolder, attempt: int) -> Iterator[tuple[JournalWriter, AliveLock]]:
    """Opens the attempt's journal and lock, which stay open unless the block raises."""
    try:
        journal = JournalWriter(folder.journal_path(attempt))
    except FileExistsError as error:
        raise AttemptClaimedError(folder.trial_id, attempt) from error
    with contextlib.ExitStack() as undo:
        undo.callback(journal.close)
        try:
            alive = AliveLock(folder.alive_path(attempt))
        except BlockingIOError as error:
            raise AttemptClaimedError(folder.trial_id, attempt) from error
        undo.callback(alive.release)
        journal.alive = alive
        folder.sweep_media()
        yield journal, alive
        undo.pop_all()
