"""The ranks that a script means, as far as they are known before they are joined."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal, TypeVar

from core_sdk._distributed import DistributedContext, has_process_group
from core_sdk._ground.environment import num_ranks_started, run_info
from core_sdk.errors import SeveralRanksError

T = TypeVar("T")


def joined_ranks(distributed: DistributedContext | Literal["torch"] | None) -> DistributedContext | None:
    """Returns the ranks that are meant, or None for a single rank. Collective for "torch"."""
    if not isinstance(distributed, str):
        return distributed
    if distributed != "torch":
        raise ValueError(f'distributed must be a DistributedContext or "torch", not {distributed!r}')
    return DistributedContext.from_torch_distributed() if num_ranks() > 1 else None


def only_rank() -> DistributedContext:
    """Returns the context of a single rank. Raises `SeveralRanksError` if several ranks were started."""
    if (size := num_ranks()) > 1:
        raise SeveralRanksError(size, size if _num_told() < size else None)
    return DistributedContext()


def num_ranks() -> int:
    """Returns the number of ranks of which this process is one, as far as can be told before they are joined."""
    info = run_info()
    num_slots = 1 if info is None else max(len(info.slot_ids), len(info.container_addrs))
    return max(_num_told(), num_slots)


def _num_told() -> int:
    """Returns the number of ranks that a launcher or the script has told this process of; 1 without either."""
    return max(num_ranks_started(), _process_group_size())


def _process_group_size() -> int:
    """Returns the size of torch's process group if the script has begun one, by whatever launcher; else 1."""
    return int(sys.modules["torch.distributed"].get_world_size()) if has_process_group() else 1


def on_all_ranks(distributed: DistributedContext, compute: Callable[[], T]) -> T:
    """Returns this rank's result of `compute`. If it raises on one rank, all ranks raise an error. Collective."""
    own: list[T] = []
    distributed.channel.allgather_outcome(lambda: own.append(compute()))
    return own[0]
