"""Attempts that the command line starts: a trial's first, its next, or the first of a trial that continues another."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from core_sdk.cli._command import CommandError, resolve, script_name
from core_sdk.cli._foreground import run_in_foreground
from core_sdk.cli._messages import say
from core_sdk.cli._pause import await_stop
from core_sdk.environment import recorded_variables
from core_sdk.errors import CoreSDKError, NothingToResumeError, TrialCompletedError
from core_sdk.records import CheckpointStored, ClusterInfo, CommandRecord, TrialInfo, TrialRecord, check_name
from core_sdk.tracking import Home, TrialFolder
from core_sdk.tracking.attempts.continuation import Continuation, newest_good_checkpoint
from core_sdk.tracking.attempts.provisional import discard_provisional, provisional_experiment, settle_unnamed
from core_sdk.tracking.claim import claimed_next_attempt
from core_sdk.tracking.deletion import delete_trial


def start_trial(
    home_path: Path,
    argv: Sequence[str],
    *,
    name: str | None,
    labels: Sequence[str],
    hparams: Mapping[str, Any],
    num_slots: int | None,
) -> int:
    """Runs the command as a new trial's first attempt; gives the exit status for our own process.

    Raises `CommandError`, and leaves no trial then.
    """
    command = _command_here(argv)
    experiment_name = check_name("the experiment's name", script_name(command.argv) if name is None else name)
    new_labels = [check_name("the label", label) for label in labels]
    home = Home.create(home_path)
    folder = home.create_trial()
    find = provisional_experiment if name is None else Home.find_or_create_experiment
    experiment = find(home, experiment_name)
    if new_labels:
        experiment.add_labels(new_labels)
    trial = TrialRecord(
        trial_id=folder.trial_id,
        experiment_id=experiment.experiment_id,
        created=time.time(),
        seed=random.SystemRandom().randrange(2**31),
        hparams=dict(hparams),
        num_slots=num_slots,
        labels=new_labels,
        is_named=name is not None,
    )
    return _run_first_attempt(folder, trial, command)


def resume_trial(home_path: Path, trial_id: int, argv: Sequence[str] = (), *, is_again: bool = False) -> int:
    """Runs the trial's command again, as its next attempt, from its newest good checkpoint.

    With `argv` the trial's command is this one, here and now, from then on; `is_again` allows what is completed.

    Raises `TrialNotFoundError`, `TrialRunningError`, `TrialCompletedError`, `NothingToResumeError` or `CommandError`.
    """
    home = Home.open(home_path)
    folder = home.trial(trial_id)
    await_stop(folder)
    with contextlib.ExitStack() as claim:
        attempt = claim.enter_context(claimed_next_attempt(folder, "resume"))
        trial = folder.read_record()
        command = _command_here(argv) if argv else _recorded_command(folder)
        continuation = newest_good_checkpoint(folder)
        if not is_again:
            _check_not_completed(home, trial_id, continuation)
        _tell_skipped(continuation)
        if continuation.checkpoint is None and continuation.skipped:
            raise NothingToResumeError(
                trial_id,
                "none of its checkpoints can be read, and to begin anew would hide all that it has reported. Mend the "
                "storage, or delete them with `core-sdk checkpoint delete`: it then begins anew",
            )
        _tell_start(trial_id, continuation)
        if argv:
            folder.write_command(command)
        # This file is what claims the attempt's number, for good.
        info = _run_info(trial, attempt, continuation.checkpoint, continuation.steps_completed)
        folder.write_run_info(attempt, info, overwrite=False)
        return run_in_foreground(folder, attempt, command, lambda: _end(folder, claim))


def _check_not_completed(home: Home, trial_id: int, continuation: Continuation) -> None:
    from core_sdk.tracking.index import Index  # SQLAlchemy, which `core-sdk run` need not pay for

    with Index.open(home) as index:
        index.refresh()
        if index.trial(trial_id).state == "COMPLETED":
            steps = continuation.steps_completed if continuation.checkpoint is not None else -1
            num_hidden = sum((report.steps_completed or 0) > steps for report in index.reports(trial_id))
            raise TrialCompletedError(trial_id, num_hidden)


def continue_trial(home_path: Path, trial_id: int) -> int:
    """Runs the trial's command as a new trial, which begins with the newest good checkpoint of the old one.

    Raises `TrialNotFoundError` or `NothingToResumeError`.
    """
    home = Home.open(home_path)
    source = home.trial(trial_id)
    command = _recorded_command(source)
    continuation = newest_good_checkpoint(source)
    _tell_skipped(continuation)
    checkpoint = continuation.checkpoint
    if checkpoint is None:
        problem = "none of its checkpoints can be read" if continuation.skipped else "it has no checkpoint"
        raise NothingToResumeError(trial_id, f"{problem}, so that a new trial has nothing to begin with")
    _tell_start(trial_id, continuation)
    folder = home.create_trial()
    trial = msgspec.structs.replace(
        source.read_record(),
        trial_id=folder.trial_id,
        created=time.time(),
        continued_from=checkpoint.storage_id,
        labels=[],
        is_defined=False,
        is_named=True,
    )
    return _run_first_attempt(folder, trial, command, checkpoint)


def _run_first_attempt(
    folder: TrialFolder, trial: TrialRecord, command: CommandRecord, checkpoint: CheckpointStored | None = None
) -> int:
    try:
        with contextlib.ExitStack() as claim:
            attempt = claim.enter_context(claimed_next_attempt(folder, "start"))
            folder.write_command(command)
            folder.write_run_info(attempt, _run_info(trial, attempt, checkpoint, steps_completed=0), overwrite=False)
            # Last, since it makes the trial visible.
            folder.write_record(trial)
            return run_in_foreground(folder, attempt, command, lambda: _end(folder, claim))
    except CommandError:
        delete_trial(folder)
        discard_provisional(Home(folder.home_root), trial.experiment_id)
        raise


def _end(folder: TrialFolder, claim: contextlib.ExitStack) -> None:
    """The script has ended."""
    with claim:
        try:
            settle_unnamed(folder)
        except (CoreSDKError, OSError) as error:
            say(f"the experiment of trial {folder.trial_id} stays without an entry by its name: {error}")


def _command_here(argv: Sequence[str]) -> CommandRecord:
    """As a later resume starts it again. Raises `CommandError`."""
    return CommandRecord(argv=resolve(argv), cwd=str(Path.cwd()), environment=recorded_variables())


def _recorded_command(folder: TrialFolder) -> CommandRecord:
    """The command, if it can still be started."""
    command = folder.read_command()
    if command is None:
        raise _nothing_to_start(folder, "the command that started it was not recorded")
    if not Path(command.cwd).is_dir():
        raise _nothing_to_start(folder, f"its working directory {command.cwd} is gone")
    try:
        resolve(command.argv)
    except CommandError as error:
        raise _nothing_to_start(folder, str(error).rstrip(".")) from error
    return command


def _nothing_to_start(folder: TrialFolder, reason: str) -> NothingToResumeError:
    return NothingToResumeError(
        folder.trial_id, f"{reason}. Give it a command: `core-sdk trial resume {folder.trial_id} -- COMMAND`"
    )


def _run_info(
    trial: TrialRecord, attempt: int, checkpoint: CheckpointStored | None, steps_completed: int
) -> ClusterInfo:
    return ClusterInfo(
        task_id=f"trial-{trial.trial_id}",
        allocation_id=f"trial-{trial.trial_id}.{attempt}",
        _slot_ids=list(range(trial.num_slots or 0)),
        container_slot_counts=[trial.num_slots or 1],
        _latest_checkpoint=checkpoint.storage_id if checkpoint else None,
        _trial_info=TrialInfo(
            trial_id=trial.trial_id,
            experiment_id=trial.experiment_id,
            trial_seed=trial.seed,
            hparams=trial.told_hparams,
            _steps_completed=steps_completed,
            _trial_run_id=attempt,
        ),
        _user_data=trial.data,
    )


def _tell_skipped(continuation: Continuation) -> None:
    for skipped in continuation.skipped:
        say(f"skipped checkpoint {skipped.storage_id}: {skipped.reason}")


def _tell_start(trial_id: int, continuation: Continuation) -> None:
    checkpoint = continuation.checkpoint
    if checkpoint is None:
        say(f"trial {trial_id} has no checkpoint: it begins anew, and what it has reported is superseded")
    else:
        say(f"continuing from checkpoint {checkpoint.storage_id} (steps_completed={checkpoint.steps_completed})")
