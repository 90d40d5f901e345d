"""Steps that ranks take together, so that what fails on one fails on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from core_sdk._distributed import Channel
from core_sdk.errors import ChannelError, CheckpointError, RankFailedError

T = TypeVar("T")


def telling(step: Callable[[], T]) -> Callable[[], T | CheckpointError]:
    """Returns the step with a `CheckpointError` made a value, so that every rank gets the error itself."""

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


def step_together(channel: Channel, step: Callable[[], None], *, is_patient: bool = False) -> None:
    """Takes a step on all ranks. Collective.

    A `CheckpointError` on one rank is raised there, and is the cause of the `RankFailedError` on the other ranks. Other
    errors are raised as by `allgather_outcome`.
    """
    outcomes = channel.allgather_outcome(telling(step), is_patient=is_patient)
    raise_if_error(outcomes[channel.rank])
    for rank, outcome in enumerate(outcomes):
        if outcome is not None:
            raise RankFailedError(rank, f"{type(outcome).__name__}: {outcome}") from outcome


def leave_together(channel: Channel, block_error: BaseException | None) -> None:
    """Raises if another rank's block has raised an error. This rank's own error is not raised again."""
    if block_error is None:
        channel.allgather_outcome(lambda: None)
        return
    block_traceback = block_error.__traceback__
    try:
        channel.allgather_outcome(lambda: _raise(block_error))
    except ChannelError:
        pass  # it may be the very reason why the others cannot be told
    except BaseException as error:
        if error is not block_error:
            raise
    block_error.__traceback__ = block_traceback


def _raise(error: BaseException) -> None:
    raise error


def differing(call: str, argument: str, given: Sequence[object]) -> ValueError:
    """Returns the error of ranks that make one call with different arguments. `given` is in rank order."""
    ranks: dict[str, list[int]] = {}
    for rank, value in enumerate(given):
        ranks.setdefault(repr(value), []).append(rank)
    values = ", ".join(
        f"{value} on rank{'s' * (len(where) > 1)} {', '.join(map(str, where))}" for value, where in ranks.items()
    )
    return ValueError(f"the ranks call {call} with different {argument}: {values}. Give the same on all ranks.")
