"""Joins the ranks of a training, in the way that fits their launcher."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import distributed as dist

from core_sdk._distributed import has_process_group
from core_sdk._ground.environment import RankPlace, is_horovod_launch, num_ranks_started
from core_sdk._runtime.backends import usual_backend
from core_sdk._runtime.devices import use_own_gpu
from core_sdk.core import DistributedContext
from core_sdk.core._ranks import only_rank


@contextlib.contextmanager
def joined_ranks(given: DistributedContext | None, backend: str | None = None) -> Iterator[DistributedContext]:
    """Yields `given`, or else joins the ranks that a launcher has started. At the end, ends what it has begun.

    Several ranks then have torch's process group, with this backend, or Horovod. Raises `SeveralRanksError` if several
    were started in a way that leads to neither.
    """
    with contextlib.ExitStack() as begun:
        if given is not None:
            if given.size > 1 and not has_process_group() and not is_horovod_launch() and _is_under_torchrun():
                begun.enter_context(_process_group(backend))
            yield given
        elif is_horovod_launch():
            yield DistributedContext.from_horovod(begun.enter_context(_horovod()))
        elif has_process_group():
            yield DistributedContext.from_torch_distributed()
        elif num_ranks_started() > 1 and _is_under_torchrun():
            begun.enter_context(_process_group(backend))
            yield DistributedContext.from_torch_distributed()
        else:
            yield only_rank()


def _is_under_torchrun() -> bool:
    try:
        RankPlace.from_torchrun()
    except KeyError:
        return False
    return True


@contextlib.contextmanager
def _process_group(backend: str | None) -> Iterator[None]:
    use_own_gpu(RankPlace.from_torchrun().local_rank)
    dist.init_process_group(backend or usual_backend(torch.cuda.is_available()))
    yield
    # Not after an error of this rank: NCCL would wait for the other ranks.
    dist.destroy_process_group()


def group_of_one() -> None:
    """Begins torch's process group for a single rank, which no launcher has started."""
    dist.init_process_group(usual_backend(torch.cuda.is_available()), store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


@contextlib.contextmanager
def _horovod() -> Iterator[Any]:
    import horovod.torch as hvd  # optional

    is_begun = hvd.is_initialized()
    if not is_begun:
        hvd.init()
    try:
        yield hvd
    finally:
        if not is_begun:
            hvd.shutdown()
