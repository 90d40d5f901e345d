"""Steps that ranks take together, so that what fails on one fails on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core_sdk.distributed import Channel
from core_sdk.errors import ChannelError, CheckpointError, RankFailedError

T = TypeVar("T")


def telling(step: Callable[[], T]) -> Callable[[], T | CheckpointError]:
    """What a storage says of a checkpoint is then a value, which every rank gets as it is."""

    def outcome() -> T | CheckpointError:
        try:
            return step()
        except CheckpointError as error:
            return error

    return outcome


def raise_if_error(outcome: T | CheckpointError) -> T:
    if isinstance(outcome, CheckpointError):
        raise outcome
    return outcome


def step_together(channel: Channel, step: Callable[[], None]) -> None:
    """A step that fails where another rank has given up: then what made that one give up is the error, not this.

    Otherwise as `allgather_outcome`: a rank's own failure, or `RankFailedError`.
    """
    outcomes = channel.allgather_outcome(telling(step))
    raise_if_error(outcomes[channel.rank])
    for rank, outcome in enumerate(outcomes):
        if outcome is not None:
            raise RankFailedError(rank, f"{type(outcome).__name__}: {outcome}") from outcome


def leave_together(channel: Channel, block_error: BaseException | None, compute: Callable[[], T]) -> list[T] | None:
    """What `compute` gives on every rank, if no rank's block has raised an error; that fails it on every rank.

    Where it was this rank's, None: the block's own error goes on.
    """
    if block_error is None:
        return channel.allgather_outcome(compute)
    block_traceback = block_error.__traceback__
    try:
        channel.allgather_outcome(lambda: _raise(block_error))
    except ChannelError:
        pass  # it may be the very reason why the others cannot be told
    except BaseException as error:
        if error is not block_error:
            raise
    block_error.__traceback__ = block_traceback
    return None


def _raise(error: BaseException) -> None:
    raise error
