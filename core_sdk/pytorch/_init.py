"""`pytorch.init()`, which begins the attempt, and sets up what its ranks need to train together."""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

from core_sdk import core
from core_sdk._ground.environment import get_cluster_info
from core_sdk._ground.records import to_json_or_text
from core_sdk._runtime.devices import current_device, use_own_gpu
from core_sdk._runtime.ranks import joined_ranks
from core_sdk._runtime.runtime import Runtime
from core_sdk._runtime.strategies import default_strategy
from core_sdk._runtime.torch_runtime import TorchRuntime
from core_sdk.core import DistributedContext, TensorboardMode
from core_sdk.loop import _rng as rng
from core_sdk.pytorch._context import PyTorchTrialContext
from core_sdk.pytorch._run import BatchPosition, TrialRun

logger = logging.getLogger("core_sdk.pytorch")

Made = TypeVar("Made", bound=Runtime)


@contextlib.contextmanager
def init(
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: DistributedContext | None = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
    checkpoint_storage: str | Mapping[str, Any] | None = None,
    name: str | None = None,
    trial_name: str | None = None,
    labels: Sequence[str] | None = None,
    notes: str | None = None,
    description: str | None = None,
    seed: int | None = None,
    deadline: float | datetime.timedelta | datetime.datetime | None = None,
    stop_notices: str | Sequence[str] | None = None,
    job_id: str | None = None,
) -> Iterator[PyTorchTrialContext]:
    """Begins the attempt, and gives the context that trials and the `Trainer` need; all of them work inside the `with`.

    `hparams` and `exp_conf` are what the context answers to `get_hparam()` and `get_experiment_config()`; the default
    is what the trial was started with. A hyperparameter that the trial was started with, by a search for example,
    replaces the script's. An optimizer makes a step every `aggregation_frequency` batches. The other arguments are
    those of `core.init()`.

    Where a launcher has started several ranks, `init()` begins torch's process group or Horovod, unless the script has
    done so, and ends at the end what it has begun. Python's, NumPy's and torch's random numbers are seeded with the
    trial's seed, the same on all ranks.
    """
    if aggregation_frequency < 1:
        raise ValueError(f"aggregation_frequency is {aggregation_frequency}; it must be at least 1")
    with (
        joined_ranks(distributed) as ranks,
        begun_attempt(
            ranks,
            partial(TorchRuntime, ranks, strategy=default_strategy(ranks), aggregation_frequency=aggregation_frequency),
            hparams=hparams,
            exp_conf=exp_conf,
            enable_tensorboard_logging=enable_tensorboard_logging,
            core_arguments={
                "checkpoint_storage": checkpoint_storage,
                "name": name,
                "trial_name": trial_name,
                "labels": labels,
                "notes": notes,
                "description": description,
                "seed": seed,
                "deadline": deadline,
                "stop_notices": stop_notices,
                "job_id": job_id,
            },
        ) as run,
        contextlib.closing(PyTorchTrialContext(run)) as context,
    ):
        yield context


@contextlib.contextmanager
def begun_attempt(
    ranks: DistributedContext,
    make_runtime: Callable[[torch.device], Made],
    *,
    hparams: Mapping[str, Any] | None,
    exp_conf: Mapping[str, Any] | None,
    enable_tensorboard_logging: bool,
    core_arguments: Mapping[str, Any],
) -> Iterator[TrialRun[Made]]:
    """Begins the attempt, seeds all random numbers, and yields what the trial's context is made from.

    `core_arguments` are further arguments of `core.init()`.
    """
    hparams = _with_those_given(hparams)
    tensorboard_mode = TensorboardMode.AUTO if enable_tensorboard_logging else TensorboardMode.MANUAL
    with core.init(
        distributed=ranks, tensorboard_mode=tensorboard_mode, hparams=hparams, **core_arguments
    ) as core_context:
        _warn_of_other_hparams(ranks, hparams or {})
        trial = core_context.info.trial
        rng.seed_all(trial.trial_seed)
        exp_conf = exp_conf if exp_conf is not None else trial.config or None
        if ranks.size > 1:
            use_own_gpu(ranks.local_rank)
        device = current_device()
        yield TrialRun(
            core_context,
            ranks,
            device,
            None if hparams is None else dict(hparams),
            None if exp_conf is None else dict(exp_conf),
            make_runtime(device),
            enables_tensorboard=enable_tensorboard_logging,
            # As far as it is known before `fit()` has read the checkpoint: the trial's __init__() may ask for it.
            position=BatchPosition(trial.steps_completed),
        )


def _with_those_given(hparams: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns the script's hyperparameters, replaced by the values with which this attempt was started.

    A value that was recorded as text, such as a path, stays the script's own if the text is equal.
    """
    info = get_cluster_info()
    given = {} if info is None else info.trial.hparams
    own = hparams or {}
    spelled = {name for name in own if name in given and to_json_or_text(own[name], name)[0] == given[name]}
    return {**own, **{name: value for name, value in given.items() if name not in spelled}} if given else hparams


def _warn_of_other_hparams(ranks: DistributedContext, hparams: Mapping[str, Any]) -> None:
    """Warns if ranks have different hyperparameters, with which they would train different models. Collective."""
    chiefs, *others = ranks.allgather({name: repr(value) for name, value in hparams.items()})
    for rank, own in enumerate(others, 1):
        different = sorted(name for name in own.keys() | chiefs.keys() if own.get(name) != chiefs.get(name))
        if different and ranks.is_chief:
            logger.warning(
                "rank %d has other hyperparameters than rank 0, whose are recorded: %s. Give all ranks the same",
                rank, ", ".join(f"{name} is {own.get(name)} instead of {chiefs.get(name)}" for name in different),
            )  # fmt: skip
