"""Collective functions for all workers, with small objects."""

from __future__ import annotations

from typing import TypeVar

from core_sdk.train._worker.session import Session

T = TypeVar("T")


def barrier() -> None:
    """Blocks until all workers have called it."""
    Session.current("barrier()").context.distributed.allgather(None)


def broadcast_from_rank_zero(data: T) -> T:
    """Returns the `data` of rank 0 on every worker. Collective. `data` should be small."""
    return Session.current("broadcast_from_rank_zero()").context.distributed.broadcast(data)
