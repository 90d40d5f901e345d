"""`init(writer=…)`: the Context of a program that reports about a trial next to its own program."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypedDict, Unpack

from core_sdk._distributed import DistributedContext
from core_sdk._ground.environment import WriterSettings, is_quiet, is_script, known_grace_s, run_info, stop_signals
from core_sdk._ground.exiting import ProgramExit
from core_sdk._ground.files import file_url
from core_sdk._ground.records import check_writer_name
from core_sdk._home import Home
from core_sdk._home.storage import storage_from_url
from core_sdk.core._announcements import tell_of_writer
from core_sdk.core._attempt import open_home
from core_sdk.core._checkpoint import Grace
from core_sdk.core._context import Context
from core_sdk.core._event_files import TensorboardMode
from core_sdk.core._experimental import ExperimentalCoreContext
from core_sdk.core._preempt import PreemptContext, PreemptMode
from core_sdk.core._preempt._clouds import Cloud
from core_sdk.core._profiler import ProfilerContext
from core_sdk.core._searcher import SearcherContext
from core_sdk.core._writer._contexts import WritersCheckpointContext, WritersTrainContext, claim_writer

logger = logging.getLogger("core_sdk.core")

_NO_ATTEMPT = 0
"""A writer is in none, so that nobody's pause stops it."""


class Options(TypedDict, total=False):
    """Arguments of `init()` for any process."""

    preempt_mode: PreemptMode
    tensorboard_mode: TensorboardMode
    deadline: float | None
    """The time by `time.monotonic()` at which `should_preempt()` becomes true."""
    clouds: Sequence[Cloud]


def init_writer(
    writer: str | None,
    trial: int | str | None,
    of_trial: Sequence[str],
    *,
    distributed: DistributedContext,
    **options: Unpack[Options],
) -> Context:
    """Returns the Context of the writer that `init()` or the environment names. Collective.

    `of_trial` are the arguments of `init()` that were given and describe a trial.
    """
    settings = WriterSettings.read()
    if (name := writer or settings.name) is None:
        raise ValueError("init(trial=…) is for a writer: give it a name with init(writer=…)")
    if of_trial and writer is not None:
        raise ValueError(f"init(writer=…) takes no {', '.join(of_trial)}: a writer does not describe the trial")
    if of_trial:
        logger.info("%s of init() are not used: %r only writes to a trial", ", ".join(of_trial), name)
    info = run_info()
    if (which := trial if trial is not None else settings.trial) is None:
        if info is None or info.trial_or_none is None:
            raise ValueError(f"init(writer={name!r}) does not say which trial to write to: give trial=…")
        which = info.trial.trial_id
    return open_writer(open_home(distributed, None), which, name, distributed, **options)


def open_writer(
    home: Home,
    which: int | str,
    name: str,
    distributed: DistributedContext,
    *,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
    deadline: float | None = None,
    clouds: Sequence[Cloud] = (),
) -> Context:
    """Returns the Context of a writer of a trial, which its id or its name tells. Collective."""
    check_writer_name(name)
    which = int(which) if isinstance(which, str) and which.isdecimal() else which
    if isinstance(which, int) and (left := home.folder(which)).path.is_dir():
        Context.close_left(left, name)
    attempt, journal = claim_writer(home, which, name, distributed)
    folder, trial_home = attempt.folder, Home(attempt.folder.home_root)
    storage = storage_from_url(file_url(home.checkpoints))
    if distributed.is_chief and run_info() is None and not is_quiet():
        tell_of_writer(attempt)
    train = WritersTrainContext(
        journal,
        folder,
        home=trial_home,
        trial_id=folder.trial_id,
        distributed=distributed,
        tensorboard_mode=tensorboard_mode,
    )
    preempt = PreemptContext(
        home=trial_home,
        trial_id=folder.trial_id,
        attempt=_NO_ATTEMPT,
        journal=journal,
        distributed=distributed,
        preempt_mode=preempt_mode,
        deadline=deadline,
        stop_signals=stop_signals(),
        clouds=clouds,
        is_of_script=is_script(),
    )
    grace = Grace(known_grace_s(), lambda: preempt.stop_known_at)
    checkpoint = WritersCheckpointContext(storage, distributed, journal, grace, folder, attempt.info)
    return Context(
        attempt=attempt,
        checkpoint=checkpoint,
        storage=storage,
        distributed=distributed,
        experimental=ExperimentalCoreContext(journal),
        preempt=preempt,
        profiler=ProfilerContext(journal, distributed.local_rank),
        searcher=SearcherContext(
            distributed=distributed, train=train, journal=journal, preempt=preempt, folder=folder, max_length=None
        ),
        train=train,
        services=(),
        program=ProgramExit.watched() if is_script() else None,
    )
