"""What all workers do together with small objects."""

from __future__ import annotations

from typing import TypeVar

from core_sdk.train.worker import current

T = TypeVar("T")


def barrier() -> None:
    """Waits until all workers have come here."""
    current.session("barrier()").context.distributed.allgather(None)


def broadcast_from_rank_zero(data: T) -> T:
    """What rank 0 has given, on every worker. Give small objects."""
    return current.session("broadcast_from_rank_zero()").context.distributed.broadcast(data)
