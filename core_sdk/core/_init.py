"""`init()`: the one place that chooses implementations."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from core_sdk.core._attempt import Definition, claim_together
from core_sdk.core._checkpoint import CheckpointContext
from core_sdk.core._context import Context
from core_sdk.core._experimental import ExperimentalCoreContext
from core_sdk.core._preempt import PreemptContext, PreemptMode, monotonic_deadline
from core_sdk.core._profiler import ProfilerContext
from core_sdk.core._searcher import SearcherContext
from core_sdk.core._train import TrainContext
from core_sdk.distributed import DistributedContext
from core_sdk.environment import Environment, get_cluster_info, launch_directory, num_ranks_started
from core_sdk.errors import SeveralRanksError
from core_sdk.records import ClusterInfo
from core_sdk.storage import Storage, open_storage
from core_sdk.tensorboard import TensorboardMirror, TensorboardMode
from core_sdk.tracking import Home


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Mapping[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
    name: str | None = None,
    hparams: Mapping[str, Any] | None = None,
    labels: Sequence[str] | None = None,
    description: str | None = None,
    data: Mapping[str, Any] | None = None,
    max_length: int | Mapping[str, int] | None = None,
    deadline: float | datetime.timedelta | datetime.datetime | None = None,
) -> Context:
    """Claims the attempt that this process executes, and returns its `Context`, to be entered with `with`.

    A process that nothing else has started begins a new trial in the experiment `name` (default: the script's name);
    `hparams`, `data` and `max_length` describe the trial, `labels` and `description` the experiment. When the trial is
    resumed, its first description stands.

    `checkpoint_storage` is a directory, a `file://` URL, or the mapping of an experiment configuration; the default is
    in the home. `max_length` is a length or `{"epochs": 20}`. `deadline` makes `should_preempt()` true: seconds from
    now, a `timedelta` from now, or a `datetime`.

    On several ranks `init()` is collective: each passes its `DistributedContext`. The chief claims the attempt, its
    arguments describe the trial, and what it reports counts for all ranks.

    Raises `SeveralRanksError` where several ranks were started and no `distributed` is given, `HomeNotWritableError`,
    `HomeTooNewError`, `AttemptClaimedError`, `RunInfoError`, `TrialNotFoundError`; `ValueError` or `TypeError` for
    arguments that cannot be kept. What one rank raises fails `init()` on all.
    """
    definition = Definition.checked(
        name=name, hparams=hparams, labels=labels, description=description, data=data, max_length=max_length
    )
    stop_at = monotonic_deadline(deadline)
    preempt_mode = PreemptMode(preempt_mode)
    tensorboard_mode = TensorboardMode(tensorboard_mode)
    environment = Environment.read()
    info = get_cluster_info()
    distributed = distributed or _only_rank(info)
    home = Home(distributed.channel.broadcast_outcome(lambda: Home.create(environment.home).root))
    storage = _open_storage(checkpoint_storage, home, distributed)
    attempt = claim_together(home.root, info, definition, distributed)
    train = TrainContext(
        folder=attempt.folder,
        journal=attempt.journal,
        distributed=distributed,
        tensorboard_mode=tensorboard_mode,
        searcher_config=attempt.info.trial._config.get("searcher", {}),
    )
    return Context(
        attempt=attempt,
        checkpoint=CheckpointContext(storage, distributed, attempt.journal),
        distributed=distributed,
        experimental=ExperimentalCoreContext(attempt.journal),
        preempt=PreemptContext(
            folder=attempt.folder,
            attempt=attempt.number,
            journal=attempt.journal,
            distributed=distributed,
            preempt_mode=preempt_mode,
            deadline=stop_at,
            launch_directory=launch_directory(),
        ),
        profiler=ProfilerContext(attempt.journal, distributed),
        searcher=SearcherContext(
            distributed=distributed, train=train, journal=attempt.journal, max_length=attempt.record.max_length
        ),
        train=train,
        mirror=(
            TensorboardMirror(attempt.journal.path, attempt.folder.tensorboard_path)
            if tensorboard_mode is TensorboardMode.AUTO and distributed.is_chief
            else None
        ),
    )


def _only_rank(info: ClusterInfo | None) -> DistributedContext:
    num_slots = 1 if info is None else max(len(info.slot_ids), len(info.container_addrs))
    if (num_ranks := max(num_ranks_started(), num_slots)) > 1:
        raise SeveralRanksError(num_ranks)
    return DistributedContext()


def _open_storage(
    checkpoint_storage: str | Mapping[str, Any] | None, home: Home, distributed: DistributedContext
) -> Storage:
    """On every rank, or on none."""
    opened: list[Storage] = []
    distributed.channel.allgather_outcome(
        lambda: opened.append(open_storage(checkpoint_storage, default=home.checkpoints))
    )
    return opened[0]
