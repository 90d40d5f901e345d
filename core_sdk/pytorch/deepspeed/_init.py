"""`deepspeed.init()`, which begins the attempt, and sets up what its ranks need to train together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import deepspeed
from torch import distributed as dist

from core_sdk._ground.environment import name_local_rank_of_one, num_ranks_started
from core_sdk._runtime.ranks import group_of_one
from core_sdk.core import DistributedContext
from core_sdk.pytorch._init import begun_attempt
from core_sdk.pytorch.deepspeed._context import DeepSpeedTrialContext, EngineRuntime


@contextlib.contextmanager
def init(
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: DistributedContext | None = None,
    enable_tensorboard_logging: bool = True,
    **core_arguments: Any,
) -> Iterator[DeepSpeedTrialContext]:
    """Begins the attempt of a `DeepSpeedTrial` as `pytorch.init()` does, and yields its context.

    Begins DeepSpeed's communication, unless the script has done so. `core_arguments` are further arguments of
    `core.init()`, such as `checkpoint_storage`, `name`, `seed` and `deadline`.
    """
    with (
        _joined_ranks(distributed) as ranks,
        begun_attempt(
            ranks,
            partial(EngineRuntime, ranks),
            hparams=hparams,
            exp_conf=exp_conf,
            enable_tensorboard_logging=enable_tensorboard_logging,
            core_arguments=core_arguments,
        ) as run,
        contextlib.closing(DeepSpeedTrialContext(run)) as context,
    ):
        yield context


@contextlib.contextmanager
def _joined_ranks(given: DistributedContext | None) -> Iterator[DistributedContext]:
    is_begun = dist.is_initialized()
    if not is_begun and num_ranks_started() == 1:
        name_local_rank_of_one()
        group_of_one()
    deepspeed.init_distributed(auto_mpi_discovery=False)
    try:
        yield given if given is not None else DistributedContext.from_torch_distributed()
    finally:
        if not is_begun:
            dist.destroy_process_group()
