"""Begins attempts that run a command: a trial's first, its next, or the first of a trial that continues another.

Every starter of attempts uses these functions. They make and record the decisions, and return the `AttemptStart` that
an agent needs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.environment import main_script, spool_variables
from core_sdk._ground.environment.arguments import fill
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import (
    ClusterInfo,
    CommandRecord,
    RecordedKeep,
    Settled,
    TrialDescription,
    TrialRecord,
    check_name,
    from_json,
)
from core_sdk._home.attempts.claiming import new_record
from core_sdk._home.attempts.command import command_here, resolve, script_name
from core_sdk._home.attempts.continuation import Continuation, chosen_checkpoint, newest_good_checkpoint
from core_sdk._home.attempts.definition import recordable_hparams
from core_sdk._home.attempts.provisional import discard_provisional, provisional_experiment
from core_sdk._home.attempts.run_info import started_info
from core_sdk._home.attempts.variables import configured_variables
from core_sdk._home.deletion import delete_trial
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.next_attempt import claim_next_attempt
from core_sdk._home.states import WAITS_FOR_SLOTS
from core_sdk._machine.slots import Slots, Ticket
from core_sdk.errors import (
    CommandError,
    NothingToResumeError,
    RecordDamagedError,
    TrialCompletedError,
    TrialNotFoundError,
    TrialRunningError,
)

logger = logging.getLogger("core_sdk.tracking")


@dataclass(frozen=True)
class AttemptStart:
    """An attempt that is to be started. The trial counts as running until `lock` is released."""

    folder: TrialFolder
    number: int
    info: ClusterInfo
    command: CommandRecord | None
    """How to start it again; None for a program that executes the attempt itself, such as a notebook."""
    lock: AliveLock
    continuation: Continuation | None = None
    """The checkpoint from which the attempt goes on; None for a trial that begins."""
    is_new_trial: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, which take precedence over the command's own."""
    default_variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that neither the command nor the agent's environment sets."""
    ticket: Ticket | None = None
    """The ticket for the slots of the attempt, if it has taken any of this machine's."""
    time_limit_s: float | None = None

    def on_nodes(self, addresses: Sequence[str]) -> AttemptStart:
        """Returns the start on these nodes, of which this is the first, and has as many slots as each. Records that."""
        if len(addresses) == 1:
            return self
        counts = self.info.container_slot_counts * len(addresses)
        info = msgspec.structs.replace(self.info, container_addrs=list(addresses), container_slot_counts=counts)
        self.folder.write_run_info(self.number, info)
        return replace(self, info=info)

    def release(self) -> None:
        """Releases the trial and the slots, of an attempt that is not started after all."""
        self.lock.release()
        if self.ticket is not None:
            self.ticket.release()

    def postpone(self) -> None:
        """Takes back an attempt of which nothing has run, so that the trial can be resumed."""
        self.folder.run_info_path(self.number).unlink()
        self.lock.release()

    def withdraw(self) -> None:
        """Takes back an attempt of which nothing has run. A new trial is removed."""
        if not self.is_new_trial:
            self.folder.run_info_path(self.number).unlink()
            self.folder.log_path(self.number).unlink(missing_ok=True)
        self.release()
        if self.is_new_trial:
            trial = self.folder.read_record()
            delete_trial(self.folder)
            if not trial.is_named:
                discard_provisional(Home(self.folder.home_root), trial.experiment_id)


def begin(
    home_path: Path,
    argv: Sequence[str] | None,
    *,
    name: str | None = None,
    described: TrialDescription | None = None,
    hparams: Mapping[str, Any] | None = None,
    num_slots: int | None = None,
    slots: Slots | None = None,
    seed: int | None = None,
) -> AttemptStart:
    """Begins a new trial of this command, here. Without a `name`, its experiment has the name of the script.

    `argv` is None for a trial that no command can start again, since this program executes it.

    Raises `CommandError` or `InvalidNameError`, and leaves no trial then.
    """
    command, experiment_name = check_beginning(argv, name, hparams or {})
    described = described or TrialDescription()
    home = Home.create(home_path)
    folder = home.create_trial()
    find = provisional_experiment if name is None else Home.find_or_create_experiment
    experiment = find(home, experiment_name)
    if described.labels:
        experiment.add_labels(described.labels)
    trial = msgspec.structs.replace(
        new_record(folder, experiment.experiment_id, seed),
        hparams=recordable_hparams(hparams or {}),
        num_slots=num_slots if slots is None else len(slots.ids),
        takes_slots=slots is not None,
        **msgspec.structs.asdict(described),
        is_named=name is not None,
    )
    return _first_attempt(folder, trial, command, slots=slots)


def check_beginning(
    argv: Sequence[str] | None, name: str | None, hparams: Mapping[str, Any]
) -> tuple[CommandRecord | None, str]:
    """Returns the command of a new trial and its experiment's name.

    Raises `CommandError` or `InvalidNameError`, as `begin` does.
    """
    command = None if argv is None else command_here(argv)
    script = main_script() if command is None else script_name(command.argv)
    experiment_name = check_name("the experiment's name", script if name is None else name)
    if command is not None:
        fill(command.argv, recordable_hparams(hparams))  # refuses a command that names others
    return command, experiment_name


def begin_in_experiment(
    folder: TrialFolder,
    experiment_id: int,
    *,
    request_id: str,
    hparams: Mapping[str, Any],
    seed: int,
    config: Mapping[str, Any],
    command: Callable[[TrialFolder], CommandRecord],
    slots: Slots,
    warm_start: str | None = None,
) -> AttemptStart:
    """Begins a trial, in a new folder, for a request of the experiment's searcher. `requested_trials` then finds it.

    `command` may fill the trial's folder, for example with the code. The script gets `config` with its `data` and
    environment variables. `warm_start` is the checkpoint from which it begins.
    """
    try:
        given = command(folder)
        trial = msgspec.structs.replace(
            new_record(folder, experiment_id, seed),
            request_id=request_id,
            hparams=recordable_hparams(hparams),
            data=dict(config.get("data") or {}),
            max_length=(config.get("searcher") or {}).get("max_length"),
            num_slots=len(slots.ids) or None,
            takes_slots=slots.ticket is not None,
            continued_from=warm_start,
            is_named=True,
        )
        return _first_attempt(folder, trial, given, config=config, slots=slots)
    except BaseException:
        folder.clear()
        raise


def queue_trial(
    folder: TrialFolder,
    experiment_id: int,
    command: CommandRecord,
    described: TrialDescription,
    *,
    hparams: Mapping[str, Any],
    seed: int,
    num_slots: int,
) -> None:
    """Records a new trial in its folder, which is QUEUED until somebody begins its first attempt by `resume`."""
    trial = msgspec.structs.replace(
        new_record(folder, experiment_id, seed),
        hparams=recordable_hparams(hparams),
        num_slots=num_slots,
        takes_slots=True,
        **msgspec.structs.asdict(described),
        is_named=True,
    )
    fill(command.argv, trial.hparams)  # refuses a command that names others
    folder.write_command(command)
    folder.append_change(Settled(time=time.time(), state="PAUSED", reason=WAITS_FOR_SLOTS, attempt=0))
    folder.write_record(trial)  # the last file, since it makes the trial visible


def requested_trials(home: Home, experiment_id: int) -> dict[str, int]:
    """Returns the trials of an experiment's searcher by request id. Reads the records of all trials of the home."""
    found = {}
    for trial_id in home.trial_ids():
        try:
            trial = home.folder(trial_id).read_record()
        except (TrialNotFoundError, RecordDamagedError) as error:  # another one is being deleted, or is damaged
            logger.warning("%s", error)
            continue
        if trial.experiment_id == experiment_id and trial.request_id:
            found[trial.request_id] = trial_id
    return found


def resume(
    folder: TrialFolder,
    argv: Sequence[str] = (),
    *,
    is_again: bool = False,
    is_here: bool = False,
    config: Mapping[str, Any] | None = None,
    slots: Slots | None = None,
) -> AttemptStart:
    """Begins the trial's next attempt, from its newest good checkpoint, with its recorded command.

    `argv` replaces the command from now on; `is_again` allows a trial that is completed; with `is_here` this program
    executes the attempt itself, and the command is not needed. Without `config`, the last attempt's configuration is
    used; without `slots`, there are as many as before.

    Raises `TrialRunningError`, `TrialCompletedError`, `NothingToResumeError` or `CommandError`.
    """
    with contextlib.ExitStack() as undo:
        attempt, lock = claim_next_attempt(folder, "resume")
        undo.callback(lock.release)
        trial = folder.read_record()
        command = _command_of_next(folder, argv, is_here=is_here)
        if command is not None:
            fill(command.argv, trial.chosen_hparams)
        continuation = newest_good_checkpoint(folder)
        if not is_again:
            _check_not_completed(folder, continuation)
        if continuation.checkpoint is None and continuation.skipped:
            raise NothingToResumeError(
                folder.trial_id,
                f"none of its checkpoints can be read ({_told(continuation)}), and to begin from nothing would hide "
                "all that it has reported. Mend the storage, or delete them with `core-sdk checkpoint delete`: it then "
                "begins from nothing",
            )
        if argv and command is not None:
            folder.write_command(command)
        last_config = _last_config(folder)
        config = last_config if config is None else config
        if config.get("data") != last_config.get("data"):  # the experiment was continued with other data
            trial.data = dict(config.get("data") or {})
        info = started_info(
            trial, attempt, continuation.storage_id, continuation.steps_completed, config, slots, time.time()
        )
        info.trial.setback = continuation.setback
        # This file is what claims the attempt's number, for good.
        folder.write_run_info(attempt, info, overwrite=False)
        undo.pop_all()
    return _start(folder, trial, info, command, lock, continuation, slots)


def claimed_elsewhere(
    folder: TrialFolder, attempt: int, command: CommandRecord, slots: Slots, home: Path, node: int = 0
) -> AttemptStart:
    """Returns the start, on one of its nodes, of an attempt that another process has claimed in `home`.

    `folder` is the trial's folder in the home, or in the node's spool if the node does not see the home. Raises
    `TrialRunningError` if the attempt was started on this node already.
    """
    info, own = folder.read_run_info(attempt), folder.of_node(node)
    if info is None:
        raise TrialNotFoundError(folder.trial_id, folder.home_root)
    if node:
        gpus = [name for name in slots.gpus if not name.isdecimal()]
        info = msgspec.structs.replace(info, container_rank=node, named_slot_ids=list(slots.ids), gpu_uuids=gpus)
        make_directory(own.path, exist_ok=True)
        own.write_run_info(attempt, info)
    try:
        lock = AliveLock(own.supervised_path(attempt))
    except BlockingIOError as error:
        raise TrialRunningError(folder.trial_id, attempt, "start") from error
    start = _start(own, folder.read_record(), info, command, lock, None, slots)
    if folder.home_root == home:
        return start
    return replace(start, variables={**start.variables, **spool_variables(home)})


def continue_from(
    source: TrialFolder,
    argv: Sequence[str] = (),
    *,
    hparams: Mapping[str, Any] | None = None,
    storage_id: str | None = None,
    keep: RecordedKeep | None = None,
    seed: int | None = None,
    described: TrialDescription | None = None,
    slots: Slots | None = None,
) -> AttemptStart:
    """Begins a new trial with the newest good checkpoint, the command, the hyperparameters and the seed of `source`.

    `argv` is another command, `hparams` replace hyperparameters of the same names, `storage_id` is another checkpoint,
    of any trial of the home, and `seed` is another seed. `keep` says what the script is to keep of the checkpoint.

    What continues a variation is a variation of it.

    Raises `NothingToResumeError`, `CommandError` or `CheckpointNotFoundError`.
    """
    command = command_here(argv) if argv else _recorded_command(source)
    continuation = newest_good_checkpoint(source) if storage_id is None else chosen_checkpoint(source, storage_id)
    if continuation.checkpoint is None:
        told = f"none of its checkpoints can be read ({_told(continuation)})"
        problem = told if continuation.skipped else "it has no checkpoint"
        raise NothingToResumeError(source.trial_id, f"{problem}, so that a new trial has nothing to begin with")
    described = described or TrialDescription()
    home, trial = Home(source.home_root), source.read_record()
    changed = recordable_hparams(hparams or {})
    chosen = trial.chosen_hparams | changed
    fill(command.argv, chosen)
    if described.labels:
        home.experiment(trial.experiment_id).add_labels(described.labels)
    folder = home.create_trial()
    trial = msgspec.structs.replace(
        trial,
        trial_id=folder.trial_id,
        created=time.time(),
        continued_from=continuation.storage_id,
        keep=keep,
        labels=described.labels,
        name=described.name,
        notes=described.notes,
        hparams=trial.hparams | changed,
        given_hparams=chosen,
        is_defined=False,
        is_named=True,
        request_id="",
        seed=trial.seed if seed is None else seed,
        is_seed_given=trial.is_seed_given or seed is not None,
        parent=source.trial_id if trial.is_variation else None,
        hypothesis="",
        try_id=None,
        code=None,
    )
    return _first_attempt(folder, trial, command, continuation, config=_last_config(source), slots=slots)


def _first_attempt(
    folder: TrialFolder,
    trial: TrialRecord,
    command: CommandRecord | None,
    continuation: Continuation | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    slots: Slots | None = None,
) -> AttemptStart:
    with contextlib.ExitStack() as undo:
        attempt, lock = claim_next_attempt(folder, "start")
        undo.callback(lock.release)
        info = started_info(trial, attempt, trial.continued_from, 0, config or {}, slots, time.time())
        folder.write_begun(trial, command, info)
        undo.pop_all()
    return _start(folder, trial, info, command, lock, continuation, slots, is_new_trial=True)


def _start(
    folder: TrialFolder,
    trial: TrialRecord,
    info: ClusterInfo,
    command: CommandRecord | None,
    lock: AliveLock,
    continuation: Continuation | None,
    slots: Slots | None,
    *,
    is_new_trial: bool = False,
) -> AttemptStart:
    has_gpus = slots is None or bool(slots.gpus)
    if slots is not None and slots.ticket is not None:
        slots.ticket.name_trial(folder.trial_id)
    arguments: dict[str, str] = {}
    if command is not None:
        argv, arguments = fill(command.argv, from_json(trial.chosen_hparams))
        command = msgspec.structs.replace(command, argv=argv)
    return AttemptStart(
        folder,
        info.trial.attempt,
        info,
        command,
        lock,
        continuation,
        is_new_trial,
        variables={
            **configured_variables(info.trial.config, has_gpus=has_gpus),
            **(slots.variables if slots else {}),
            **arguments,
        },
        default_variables=slots.default_variables if slots else {},
        ticket=slots.ticket if slots else None,
        time_limit_s=trial.time_limit_s,
    )


def _last_config(folder: TrialFolder) -> dict[str, Any]:
    """Returns the configuration in the newest run info that can be read; empty if there is none."""
    for attempt in reversed(folder.attempts()):
        with contextlib.suppress(RecordDamagedError):
            if (info := folder.read_run_info(attempt)) is not None and info.trial_or_none is not None:
                return info.trial.config
    return {}


def _check_not_completed(folder: TrialFolder, continuation: Continuation) -> None:
    from core_sdk._home.index import Index  # a database, which many commands need not open

    with Index(Home(folder.home_root)) as index:
        index.refresh()
        if index.trial(folder.trial_id).state == "COMPLETED":
            steps = -1 if continuation.checkpoint is None else continuation.steps_completed
            num_hidden = sum(
                (report.steps_completed or 0) > steps for report in index.reports(folder.trial_id, rank="all")
            )
            raise TrialCompletedError(folder.trial_id, num_hidden)


def _told(continuation: Continuation) -> str:
    return "; ".join(f"{skipped.storage_id}: {skipped.reason}" for skipped in continuation.skipped)


def _command_of_next(folder: TrialFolder, argv: Sequence[str], *, is_here: bool) -> CommandRecord | None:
    if is_here:
        return folder.read_command()
    return command_here(argv) if argv else _recorded_command(folder)


def _recorded_command(folder: TrialFolder) -> CommandRecord:
    """Returns the recorded command. Raises `NothingToResumeError` if it cannot be started any more."""
    command = folder.read_command()
    if command is None and (first := folder.read_record().started_by) is not None:
        raise _nothing_to_start(
            folder, f"it was started by the program of trial {first}, whose command begins with that"
        )
    if command is None:
        raise _nothing_to_start(folder, "the command that started it was not recorded, or begins with another trial")
    if not (cwd := Path(command.cwd)).is_dir():
        if cwd == folder.code_path:
            raise NothingToResumeError(
                folder.trial_id,
                "its copy of its try's code was removed when it was completed. `core-sdk code "
                f"{folder.trial_id} --checkout DIR` gives that back, for a command that starts there"
                if folder.read_record().try_id is not None
                else "its copy of its experiment's code was removed when it was completed. `core-sdk experiment "
                f"continue --new --trial {folder.trial_id} EXPERIMENT` begins an experiment that goes on with it",
            )
        raise _nothing_to_start(folder, f"its working directory {cwd} is gone")
    try:
        resolve(command.argv)
    except CommandError as error:
        raise _nothing_to_start(folder, str(error).rstrip(".")) from error
    return command


def _nothing_to_start(folder: TrialFolder, reason: str) -> NothingToResumeError:
    trial_id = folder.trial_id
    return NothingToResumeError(trial_id, f"{reason}. Give it a command: `core-sdk trial resume {trial_id} -- COMMAND`")
