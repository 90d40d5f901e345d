"""One execution of a trial's script, claimed by its chief: its folder, number, info and journal."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._version import __version__
from core_sdk.core._searcher import parse_max_length
from core_sdk.distributed import DistributedContext
from core_sdk.environment import (
    command_of_this_process,
    job,
    leave_job,
    left_job,
    main_script,
    recorded_variables,
    use_run_info,
)
from core_sdk.errors import AttemptClaimedError, HomeNotWritableError
from core_sdk.journal import AliveLock, Journal, JournalWriter, RankJournal, read_records
from core_sdk.placement import Job, named_job
from core_sdk.records import (
    FORMAT,
    AttemptStarted,
    ClusterInfo,
    CommandRecord,
    Ended,
    TrialInfo,
    TrialRecord,
    check_name,
    from_json,
    to_json,
)
from core_sdk.tracking import Home, TrialFolder
from core_sdk.tracking.attempts.jobs import leave_word_of_job, leave_word_of_several
from core_sdk.tracking.attempts.provisional import settle
from core_sdk.tracking.attempts.restarts import info_of_next_attempt, leave_word

logger = logging.getLogger("core_sdk.core")


@dataclass(frozen=True)
class Definition:
    """What `init()` says about its trial, as JSON keeps it.

    It counts on a trial's first attempt; later ones keep what was recorded.
    """

    name: str | None = None
    hparams: dict[str, Any] | None = None
    labels: tuple[str, ...] | None = None
    description: str | None = None
    data: dict[str, Any] | None = None
    max_length: int | dict[str, int] | None = None
    job: Job | None = None
    """The training that this is a start of."""

    @classmethod
    def checked(
        cls,
        *,
        name: str | None,
        hparams: Mapping[str, Any] | None,
        labels: Sequence[str] | None,
        description: str | None,
        data: Mapping[str, Any] | None,
        max_length: int | Mapping[str, int] | None,
        job_id: str | None = None,
    ) -> Definition:
        """Raises `ValueError` or `TypeError` for what cannot be kept."""
        parse_max_length(max_length)
        if isinstance(labels, str):
            raise TypeError(f"labels is {labels!r}, a str; it must be a list of labels")
        return cls(
            name=None if name is None else check_name("the experiment's name", name),
            hparams=None if hparams is None else _checked_dict(hparams, "hparams"),
            labels=None if labels is None else tuple(check_name("the label", label) for label in labels),
            description=None if description is None else _checked_text(description, "description"),
            data=None if data is None else _checked_dict(data, "data"),
            max_length=to_json(max_length, "max_length"),
            job=None if job_id is None else named_job(check_name("job_id", job_id)),
        )


def _checked_dict(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a dict, not {type(value).__name__}")
    return dict(to_json(value, what))


def _checked_text(value: str, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {type(value).__name__}")
    return str(to_json(value, what))


@dataclass(frozen=True)
class Attempt:
    """Exactly one process holds an attempt; that of a trial's other ranks is the chief's."""

    folder: TrialFolder
    number: int
    info: ClusterInfo
    record: TrialRecord
    start: AttemptStarted
    journal: Journal
    alive: AliveLock | None
    """The chief's."""
    is_home_shared: bool = True
    """This rank sees what the chief records."""


@dataclass(frozen=True)
class _Claimed:
    """What the chief tells the other ranks of the attempt."""

    home: Path
    number: int
    info: ClusterInfo
    record: TrialRecord
    start: AttemptStarted


def claim_together(
    home_path: Path, info: ClusterInfo | None, definition: Definition, distributed: DistributedContext
) -> Attempt:
    """Collective: what `claim_attempt` gives the chief, and what belongs to it on the other ranks."""
    attempts: list[Attempt] = []

    def claim() -> _Claimed:
        distributed.channel.check()
        home = Home(home_path)
        attempt = claim_attempt(home, info_of_next_attempt(home, info, definition.job), definition, distributed.size)
        attempts.append(attempt)
        if _is_new_trial(info):
            _leave_word_of_job(attempt.folder, definition.job)
        if _is_restart(info, attempt.number):
            attempt.folder.write_run_info(attempt.number, _as_recorded(attempt))
        return _Claimed(attempt.folder.home_root, attempt.number, attempt.info, attempt.record, attempt.start)

    try:
        claimed = distributed.channel.broadcast_outcome(claim)
    except BaseException as error:
        for attempt in attempts:
            _give_back(attempt, error, is_new_trial=_is_new_trial(info))
        raise
    leave_job()
    attempt = attempts[0] if attempts else _of_other_rank(claimed, info, distributed.rank)
    if distributed.is_local_chief:
        leave_word(attempt.folder, attempt.number, is_home_shared=attempt.is_home_shared)
    if _is_restart(info, attempt.number) and attempt.is_home_shared:
        # The launcher gave this process, as it gave its predecessor, what was true for the first attempt.
        use_run_info(attempt.folder.run_info_path(attempt.number))
    return attempt


def _leave_word_of_job(folder: TrialFolder, named: Job | None) -> None:
    if (current := named or job()) is not None:
        leave_word_of_job(folder, current)
    elif (left := left_job()) is not None:
        leave_word_of_several(Home(folder.home_root), left)


def _is_restart(info: ClusterInfo | None, number: int) -> bool:
    return info is not None and info.task_type == "TRIAL" and info.trial._trial_run_id != number


def _as_recorded(attempt: Attempt) -> ClusterInfo:
    """What a run info file says of the attempt."""
    trial = msgspec.structs.replace(attempt.info.trial, hparams=attempt.record.told_hparams)
    return msgspec.structs.replace(attempt.info, _trial_info=trial, _user_data=attempt.record.data)


def _give_back(attempt: Attempt, error: BaseException, *, is_new_trial: bool) -> None:
    """Not all ranks have learnt of it, and nothing can come of it."""
    attempt.journal.append(Ended(time=time.time(), outcome="error", error=f"the ranks did not begin together: {error}"))
    attempt.journal.close()
    if attempt.alive is not None:
        attempt.alive.release()
    if is_new_trial:
        attempt.folder.clear()


def _of_other_rank(claimed: _Claimed, own_info: ClusterInfo | None, rank: int) -> Attempt:
    folder = TrialFolder(claimed.home, claimed.record.trial_id)
    start = _start_record(folder, claimed.number, None, 0, rank)
    is_home_shared = _begins_with(folder.journal_path(claimed.number), claimed.start)
    journal = RankJournal(folder.rank_journal_path(claimed.number, rank), start, is_home_shared=is_home_shared)
    info = _on_this_node(claimed.info, own_info)
    return Attempt(folder, claimed.number, info, claimed.record, start, journal, None, is_home_shared)


def _begins_with(journal: Path, start: AttemptStarted) -> bool:
    """On another node there may be nothing at this place, or another home with a trial of the same number."""
    try:
        return next(read_records(journal), None) == start
    except OSError:
        return False


def _on_this_node(info: ClusterInfo, own_info: ClusterInfo | None) -> ClusterInfo:
    """The chief's, but for what differs between nodes."""
    if own_info is not None:
        info.container_rank = own_info.container_rank
        info._slot_ids = own_info._slot_ids
        info.container_slot_counts = own_info.container_slot_counts
        info.gpu_uuids = own_info.gpu_uuids
        info.agent_id = own_info.agent_id
    return info


def claim_attempt(home: Home, info: ClusterInfo | None, definition: Definition, num_ranks: int = 1) -> Attempt:
    """The attempt that `info` names; without one, the first attempt of a new trial.

    Raises `AttemptClaimedError` if another call was first, `TrialNotFoundError` if `info` speaks of another home,
    `HomeNotWritableError` if something cannot be written: a new trial is then taken back.
    """
    try:
        if info is None or _is_new_trial(info):
            here = msgspec.structs.replace(info or ClusterInfo(), task_type="TRIAL")
            return _claim_first_attempt(home, here, definition, num_ranks)
        return _claim_given_attempt(home, info, definition)
    except OSError as error:
        raise HomeNotWritableError(home.root, error.strerror or str(error)) from error


def _is_new_trial(info: ClusterInfo | None) -> bool:
    """Whether nothing else has made the trial before."""
    return info is None or info.task_type != "TRIAL"


def _claim_first_attempt(home: Home, info: ClusterInfo, definition: Definition, num_ranks: int) -> Attempt:
    folder = home.create_trial()
    try:
        return _start_first_attempt(home, folder, info, definition, num_ranks)
    except BaseException:
        # Nothing half-made may be listed.
        folder.clear()
        raise


def _start_first_attempt(
    home: Home, folder: TrialFolder, info: ClusterInfo, definition: Definition, num_ranks: int
) -> Attempt:
    experiment = home.find_or_create_experiment(definition.name or main_script())
    record = _define(
        TrialRecord(
            trial_id=folder.trial_id,
            experiment_id=experiment.experiment_id,
            created=time.time(),
            seed=random.SystemRandom().randrange(2**31),
        ),
        definition,
    )
    _describe_experiment(home, record.experiment_id, definition)
    if num_ranks == 1:
        _write_command(folder)
    else:
        logger.info(
            "trial %d cannot be resumed by `core-sdk trial resume`, since the command of the launcher is not known: "
            "start it with `core-sdk run -- …`",
            folder.trial_id,
        )
    with _claimed(folder, attempt=1) as (journal, alive):
        start = _append_start(journal, folder, 1, latest_checkpoint=None, resumed_steps=0)
        # Last, since it makes the trial visible.
        folder.write_record(record)
    return Attempt(folder, 1, _with_trial(info, record, attempt=1), record, start, journal, alive)


def _claim_given_attempt(home: Home, info: ClusterInfo, definition: Definition) -> Attempt:
    folder = home.trial(info.trial.trial_id)
    number = info.trial._trial_run_id
    with _claimed(folder, number) as (journal, alive):
        resumed_steps = info.trial._steps_completed
        start = _append_start(journal, folder, number, info.latest_checkpoint, resumed_steps)
        record = folder.read_record()
        if record.is_defined:
            _warn_of_change(record, definition)
        else:
            record = _define(record, definition)
            left = None if record.is_named else settle(home, record, definition.name)
            _describe_experiment(home, record.experiment_id, definition)
            folder.write_record(record)
            if left is not None:
                left.discard()
    return Attempt(folder, number, _with_trial(info, record, number), record, start, journal, alive)


def _define(record: TrialRecord, definition: Definition) -> TrialRecord:
    record.is_defined = True
    record.given_hparams = record.told_hparams
    if definition.hparams is not None:
        _warn_of_contradiction(record.trial_id, definition.hparams, record.given_hparams)
        record.hparams = record.hparams | definition.hparams
    if definition.data is not None:
        record.data = definition.data
    if definition.max_length is not None:
        record.max_length = definition.max_length
    return record


def _warn_of_contradiction(trial_id: int, said: dict[str, Any], given: dict[str, Any]) -> None:
    if differences := _differences(said, given, "given"):
        logger.warning(
            "trial %d: init(hparams=…) contradicts the hyperparameters that were given to the trial (%s). What the "
            "script says is recorded. To train with the given ones, take them from get_cluster_info().trial.hparams, "
            "and pass those to init()",
            trial_id,
            differences,
        )


def _warn_of_change(record: TrialRecord, definition: Definition) -> None:
    """A resumed trial is what its first attempt said it is."""
    if differences := _differences(definition.hparams or {}, record.hparams, "recorded"):
        logger.warning(
            "trial %d goes on with other hyperparameters than it began with (%s). What was recorded first stays",
            record.trial_id,
            differences,
        )


def _differences(said: dict[str, Any], other: dict[str, Any], other_name: str) -> str:
    """Empty if there are none."""
    return ", ".join(
        f"{name}: {value!r} in the script, {other[name]!r} {other_name}"
        for name, value in said.items()
        if name in other and value != other[name]
    )


def _describe_experiment(home: Home, experiment_id: int, definition: Definition) -> None:
    if definition.labels is None and definition.description is None:
        return
    with home.experiment(experiment_id).edit() as experiment:
        experiment.labels = list(dict.fromkeys([*experiment.labels, *(definition.labels or ())]))
        if definition.description is not None:
            experiment.description = definition.description


def _write_command(folder: TrialFolder) -> None:
    if (command := command_of_this_process()) is None:
        return
    try:
        cwd = Path.cwd()
        argv = [argument.encode().decode() for argument in command]
    except (FileNotFoundError, UnicodeEncodeError) as error:
        logger.warning(
            "trial %d cannot be resumed by `core-sdk trial resume`: its working directory is gone, or an argument is "
            "not UTF-8 (%s)",
            folder.trial_id,
            error,
        )
        return
    folder.write_command(CommandRecord(argv=argv, cwd=str(cwd), environment=recorded_variables()))


@contextlib.contextmanager
def _claimed(folder: TrialFolder, attempt: int) -> Iterator[tuple[JournalWriter, AliveLock]]:
    """The attempt's journal and lock, for good; closed again if the block raises."""
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
        yield journal, alive
        undo.pop_all()


def _append_start(
    journal: JournalWriter, folder: TrialFolder, attempt: int, latest_checkpoint: str | None, resumed_steps: int
) -> AttemptStarted:
    start = _start_record(folder, attempt, latest_checkpoint, resumed_steps, rank=0)
    journal.append_or_raise(start)
    return start


def _start_record(
    folder: TrialFolder, attempt: int, latest_checkpoint: str | None, resumed_steps: int, rank: int
) -> AttemptStarted:
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
    )


def _with_trial(info: ClusterInfo, record: TrialRecord, attempt: int) -> ClusterInfo:
    """`info`, with the trial as it was recorded."""
    info._trial_info = TrialInfo(
        trial_id=record.trial_id,
        experiment_id=record.experiment_id,
        trial_seed=record.seed,
        hparams=from_json(record.told_hparams),
        _config=info._trial_info._config if info._trial_info else {},
        _steps_completed=info._trial_info._steps_completed if info._trial_info else 0,
        _trial_run_id=attempt,
    )
    info._user_data = from_json(record.data)
    return info
