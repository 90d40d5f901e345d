"""`init()` claims the attempt that a script executes, or the name of a writer, and returns its `Context`."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from core_sdk._distributed import DistributedContext
from core_sdk._ground.environment import (
    WriterSettings,
    fingerprints_path,
    imports_path,
    is_quiet,
    launch_directory,
    left_job,
    run_info,
    signs_directory,
    torchrun_launch,
)
from core_sdk._ground.files import file_url
from core_sdk._ground.guards import Guard, checked_guards
from core_sdk._ground.keywords import says_what_is_meant
from core_sdk._ground.records import ClusterInfo
from core_sdk._ground.signs import SignsOfLife
from core_sdk._home import Home
from core_sdk._home.attempts.claiming import Attempt
from core_sdk._home.attempts.definition import Definition
from core_sdk._home.attempts.jobs import noted_trial
from core_sdk._home.history import read_history
from core_sdk._home.journal import HeardJournal
from core_sdk._home.pushes import have_pushed, workspace_address
from core_sdk._home.storage import Storage, open_storage, storage_from_url
from core_sdk.core._announcements import Announcements
from core_sdk.core._attempt import claim_together, open_home
from core_sdk.core._checkpoint._together import differing
from core_sdk.core._collection import record_policy
from core_sdk.core._context import Context, Service
from core_sdk.core._preempt import PreemptMode
from core_sdk.core._preempt._disturbance import disturber
from core_sdk.core._profiler._steps import StepProfiler
from core_sdk.core._ranks import joined_ranks, on_all_ranks, only_rank
from core_sdk.core._recorders import EnvironmentRecorder
from core_sdk.core._resumption import Resumption
from core_sdk.core._searcher import parse_max_length
from core_sdk.core._settings import ProcessSettings
from core_sdk.core._train import TensorboardMode, TrialLedger
from core_sdk.core._train._guarding import Guarding, guards_of, tell_setback

_WORDS_OF_OTHERS = {
    "config": "hparams",
    "display_name": "trial_name",
    "experiment": "name",
    "id": "job_id",
    "project": "name",
    "run_name": "trial_name",
    "tags": "labels",
}
"""The names by which other trackers know our arguments."""


@says_what_is_meant(_WORDS_OF_OTHERS)
def init(
    *,
    distributed: DistributedContext | Literal["torch"] | None = None,
    checkpoint_storage: str | Mapping[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
    name: str | None = None,
    trial_name: str | None = None,
    hparams: Any = None,
    labels: Sequence[str] | None = None,
    notes: str | None = None,
    description: str | None = None,
    data: Mapping[str, Any] | None = None,
    max_length: int | Mapping[str, int] | None = None,
    seed: int | None = None,
    metric: str | None = None,
    larger_is_better: bool | None = None,
    deadline: float | datetime.timedelta | datetime.datetime | None = None,
    stop_notices: str | Sequence[str] | None = None,
    job_id: str | None = None,
    steps_completed: int | None = None,
    trial: int | str | None = None,
    guards: Sequence[Guard | Mapping[str, Any]] = (),
    writer: str | None = None,
    workspace: str | None = None,
) -> Context:
    """Claims the attempt that this process executes, and returns its `Context`, to be entered with `with`.

    A process that was started on its own begins a new trial. A process that was started by an experiment,
    `core-sdk run` or `trial resume` continues the trial for which it was started. All arguments may be left out:

    - `distributed`: the ranks of the trial. Every rank of several passes its `DistributedContext`, or "torch", which
      means the ranks of torchrun or of torch's process group, and this rank alone if there are none. Default: one rank.
    - `checkpoint_storage`: where checkpoints are stored: a directory, a URL (`gs://bucket/prefix`, `s3://…`,
      `azure://container/prefix`, `file://…`), or the mapping of an experiment's configuration, which also says which
      checkpoints to keep. It is opened, written to and swept here. Default: what the experiment's configuration says,
      else the home; and all are kept.
    - `preempt_mode`: who calls `should_preempt()`. Default: all ranks, and they stop at the same call.
    - `tensorboard_mode`: how event files that the script writes itself are shown, as `TensorboardMode` says. Default:
      where they are written. What is reported is shown in either mode.
    - `name`: the experiment to which the trial belongs. `core-sdk run --name` has precedence. Default: the script's
      name.
    - `trial_name`: the name of the trial, which need not be the only one of this name. `core-sdk run --trial-name` has
      precedence. Default: a generated one, such as "calm-otter-12".
    - `hparams`: the trial's hyperparameters, for lists and charts: a mapping, or an object with fields (the namespace
      of argparse, a dataclass, an object of attrs, pydantic or OmegaConf). They replace values of `core-sdk
      run --hparam` that have the same names, with a warning; in a trial of a search they only add to what the search
      has chosen. What JSON cannot keep, and what is too long, such as a list of more than 2,000 items, is recorded as
      text, with a warning; more than 20,000 names are a `ValueError`.
    - `labels`: words to find the trial by, and its experiment. They add to the labels of `core-sdk run --label`.
    - `notes`: what people should know of the trial, in Markdown. `core-sdk run --notes` has precedence.
    - `description`: of the experiment.
    - `data`: anything that JSON can keep, for `core_context.info.user_data`; what is too long as for `hparams`.
    - `max_length`: how long to train, for `searcher.operations()`: a number, or `{"epochs": 20}` with `batches`,
      `records` or `epochs`. Default: no length; a search brings its own.
    - `seed`: the trial's seed, from 0 to 2147483647, for `core_context.info.trial.trial_seed`. The seed of a search, or
      of `core-sdk run --seed`, has precedence. `init()` seeds no generators. Default: a random number.
    - `metric`: the metric that says what is best, with its group or without it ("accuracy", "training.loss"), for
      every command that asks: `core-sdk experiment best`, `trial evidence`, retention. `core-sdk run --metric` and the
      metric of a search have precedence. Default: none; each command must be told.
    - `larger_is_better`: how `metric` is read. Default: smaller values are better.
    - `deadline`: when `should_preempt()` becomes true: seconds from now, a `timedelta` from now, or a `datetime`.
      Default: never.
    - `stop_notices`: the clouds ("gce", "ec2") whose metadata servers are asked whether the machine is about to end,
      which is a stop. Default: the variable CORE_SDK_STOP_NOTICES, else none.
    - `job_id`: names the training: each start with the same name goes on with its trial. Default: the variable
      CORE_SDK_JOB_ID, else Slurm's job, else none.
    - `steps_completed`: for a script that goes on by files of its own, the step at which they were written. In a trial
      that was begun before, reports up to this step stay visible, and `core_context.info` names no checkpoint. Default:
      the step of the newest checkpoint.
    - `guards`: rules about reported metrics, each a `Guard` or a mapping with its fields, and what is done when a
      report breaks one: tell, stop, or go back to a checkpoint from before. `core-sdk run --guard`, and `guards` in
      the configuration of an experiment, have precedence. Default: none.
    - `writer`: a name under which this process only reports about a trial, next to the trial's own program, whether
      that runs, is paused or has ended. Many processes may, each under another name. It makes no attempt, and reads
      checkpoints but stores none; `train` says what its reports count as. Pausing the trial does not stop it, signals
      and `deadline` do. Default: the variable CORE_SDK_WRITER, else none.
    - `trial`: the id or the name of the trial that a writer reports about. Default: the variable CORE_SDK_TRIAL, else
      the trial whose script has started this one.

    - `workspace`: the workspace on a server to which the records are sent as well, in the background, from a process of
      its own: the name of a login, or an address. Nothing here waits for it, and a server that is away gets all of it
      later; "" sends nothing. Default: the variable CORE_SDK_SERVER, else none.

    A trial that is resumed keeps the `hparams`, `data`, `max_length`, `seed` and `metric` of its first attempt, and its
    name, labels and notes, as somebody may have changed them since.

    On several ranks `init()` is collective. The chief claims the attempt; its arguments describe the trial, and its end
    is the attempt's. All ranks use its home; a rank whose node does not see that home records nothing. The modes, the
    seed, and the storage within a node, must be the same on all ranks. Of a
    writer's ranks only the chief records something.

    Raises `SeveralRanksError` where several ranks were started and no `distributed` is given, `HomeNotWritableError`,
    `HomeTooNewError`, `AttemptClaimedError`, `TrialNotFoundError`; `AttemptError` for a run info that cannot be read or
    an earlier start of the job that still runs; `WriterRefusedError` if a living
    process writes under the name, or the trial's script has not begun; `UnknownWorkspaceError` for the name of no
    login; a `StorageError` saying what is
    wrong with the bucket, the credentials or the permissions, or `MissingDependencyError`; `ValueError` or `TypeError`
    for arguments that cannot be kept. An error on one rank fails `init()` on all.
    """

    of_trial: dict[str, Any] = {
        "name": name,
        "trial_name": trial_name,
        "hparams": hparams,
        "labels": labels,
        "notes": notes,
        "description": description,
        "data": data,
        "max_length": max_length,
        "seed": seed,
        "metric": metric,
        "larger_is_better": larger_is_better,
        "job_id": job_id,
        "steps_completed": steps_completed,
    }
    is_writer = writer is not None or trial is not None or WriterSettings.read().name is not None
    ranks = joined_ranks(distributed) or (DistributedContext() if is_writer else only_rank())
    settings = on_all_ranks(
        ranks, lambda: ProcessSettings.given(preempt_mode, tensorboard_mode, deadline, stop_notices)
    )
    if is_writer:
        from core_sdk.core._writer import init_writer  # not for all scripts

        of_program = {"checkpoint_storage": checkpoint_storage, "guards": guards or None, **of_trial}
        return init_writer(writer, trial, of_program, ranks, settings, workspace)

    def check() -> tuple[Definition, ClusterInfo | None, str]:
        parse_max_length(max_length)
        checked_guards(guards)
        return Definition(**of_trial), run_info(), workspace_address(workspace) if ranks.is_chief else ""

    definition, info, address = on_all_ranks(ranks, check)
    home = open_home(ranks, info)
    configured = _configured_storage(info) if checkpoint_storage is None else checkpoint_storage
    storage = on_all_ranks(ranks, lambda: _open_storage(configured, home, ranks))
    _check_agreement(ranks, settings, definition, storage)
    if definition.job is not None and (left := noted_trial(home, definition.job)) is not None:
        Context.close_left(left)
    attempt = claim_together(home, info, definition, ranks)
    if ranks.is_chief:
        record_policy(attempt, configured)
        have_pushed(attempt.folder, address)
    recorders: list[Service] = _recorders(attempt) if ranks.is_chief else []
    if (directory := signs_directory()) is not None:
        recorders.append(SignsOfLife(directory, ranks.rank))
    if (path := fingerprints_path()) is not None:
        from core_sdk.core._recorders._fingerprints import FingerprintRecorder, path_of_rank  # only checks need it

        fingerprints = FingerprintRecorder(path_of_rank(path, ranks.rank), attempt.start.resumed_steps, ranks.rank)
        recorders.append(fingerprints)
        if ranks.is_chief:
            attempt = replace(attempt, journal=HeardJournal(attempt.journal, fingerprints.hear))
    profiler = StepProfiler(attempt.folder, attempt.number) if ranks.is_chief else None
    if profiler is not None:
        recorders.append(profiler)
    guarding = _guarding(attempt, guards) if ranks.is_chief else None
    if guarding is not None:
        attempt = replace(attempt, journal=guarding.guarded(attempt.journal))
    if (disturbing := disturber() if ranks.is_chief else None) is not None:
        attempt = replace(attempt, journal=disturbing.heard(attempt.journal))
    context = Context(
        attempt,
        storage,
        ranks,
        settings,
        TrialLedger(),
        earlier=_earlier_checkpoints(attempt, storage, ranks),
        resumption=Resumption(attempt.start, attempt.journal) if ranks.is_chief else None,
        services=recorders,
        # `core-sdk run`, masters and programs with workers give a run info, and speak themselves.
        announcements=Announcements.begun(attempt) if ranks.is_chief and info is None and not is_quiet() else None,
        is_started_again=_is_started_again(definition, info, ranks),
    )
    if disturbing is not None:
        disturbing.preempt = context.preempt
    if guarding is not None:
        guarding.preempt = context.preempt
    if profiler is not None:
        profiler.preempt = context.preempt
    return context


def _guarding(attempt: Attempt, given: Sequence[Guard | Mapping[str, Any]]) -> Guarding | None:
    tell_setback(attempt)
    guards = guards_of(attempt, given)
    return Guarding(attempt, guards) if guards else None


def _recorders(attempt: Attempt) -> list[Service]:
    recorders: list[Service] = [EnvironmentRecorder(attempt.folder, attempt.number)]
    if attempt.record.is_variation:
        from core_sdk.core._recorders._sources import SourceRecorder  # few trials are one

        recorders.append(SourceRecorder(attempt.folder, attempt.number))
    if (path := imports_path()) is not None:
        from core_sdk.core._recorders._imports import ImportRecorder  # only trials of searches are asked for it

        recorders.append(ImportRecorder(path))
    return recorders


def _is_started_again(definition: Definition, info: ClusterInfo | None, ranks: DistributedContext) -> bool:
    """Returns whether a job starts the script again if its status is 75.

    Agents and launchers have a status of their own, which tells how the trial has ended.
    """
    is_in_job = definition.job is not None or left_job() is not None
    is_watched = info is not None or launch_directory() is not None or torchrun_launch() != ""
    return is_in_job and ranks.size == 1 and not is_watched


def _configured_storage(info: ClusterInfo | None) -> str | Mapping[str, Any] | None:
    """Returns the experiment's configured `checkpoint_storage`; None if there is no configuration."""
    return None if info is None or info.trial_or_none is None else info.trial.config.get("checkpoint_storage")


def _open_storage(checkpoint_storage: str | Mapping[str, Any] | None, home: Home, ranks: DistributedContext) -> Storage:
    if checkpoint_storage is None and not ranks.is_chief and not os.access(home.root, os.W_OK | os.X_OK):
        # On a node that does not see the chief's home there is no such directory; its ranks may store nothing.
        return storage_from_url(file_url(home.checkpoints))
    if isinstance(checkpoint_storage, Mapping) and checkpoint_storage.get("type") is None and checkpoint_storage:
        checkpoint_storage = None  # it only says which checkpoints to keep
    return open_storage(checkpoint_storage, default=home.checkpoints)


def _earlier_checkpoints(attempt: Attempt, storage: Storage, ranks: DistributedContext) -> dict[str, str]:
    """Returns the URL of the storage of each of the trial's checkpoints; empty for those in `storage`. Collective."""

    def read() -> dict[str, str]:
        recorded = [each.record for each in read_history(attempt.folder).checkpoints]
        return {each.storage_id: "" if each.storage == storage.url else each.storage for each in recorded}

    return ranks.channel.broadcast_outcome(read)


def _check_agreement(
    ranks: DistributedContext, settings: ProcessSettings, definition: Definition, storage: Storage
) -> None:
    """Raises `ValueError` on all ranks if their arguments differ."""
    own = {
        "preempt_mode": settings.preempt_mode,
        "tensorboard_mode": settings.tensorboard_mode,
        "seed": definition.seed,
    }
    told, urls = zip(*ranks.channel.allgather((own, storage.url)), strict=True)
    for argument in own:
        values = [each[argument] for each in told]
        if len(set(values)) > 1:
            raise differing("init()", argument, values)
    # Another node may have the same directory under another path.
    if len(set(zip(ranks.hosts, urls, strict=True))) > len(set(ranks.hosts)):
        raise differing("init()", "checkpoint_storage", urls)
