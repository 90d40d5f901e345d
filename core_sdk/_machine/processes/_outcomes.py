"""The outcomes of one start of the ranks, and the rules by which they are judged."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

import msgspec

from core_sdk._machine.processes._causes import (
    FailureKind,
    RankSeen,
    failed,
    first_failure,
    kind_of,
    may_change,
    stuck_after_failure,
)


class Succeeded(msgspec.Struct, frozen=True):
    was_stopped: bool
    """Whether the training stopped on request, to be resumed."""


class Failed(msgspec.Struct, frozen=True):
    first: RankSeen


class FailedElsewhere(msgspec.Struct, frozen=True):
    """A rank of another node failed first."""

    code: int
    words: tuple[str, ...]
    """That node's messages about it."""
    is_restarting: bool = False
    """Whether all ranks are to be started again."""


class NodesLost(msgspec.Struct, frozen=True):
    """Other nodes have fallen silent: they are down, or cut off."""

    names: tuple[str, ...]


class Obeyed(msgspec.Struct, frozen=True):
    """Ranks died of a signal that was passed on to them."""

    signal: int
    ranks: tuple[int, ...]


class RankGrace(msgspec.Struct, frozen=True):
    """The time that ranks may take to end after a stop was asked for."""

    total_s: float
    source: str
    """The variable or option that says so."""

    def __str__(self) -> str:
        return f"{self.source}={self.total_s:g}"


class Stopping(msgspec.Struct, frozen=True):
    """A stop that was asked for, while ranks of this node have not ended."""

    signals: tuple[int, ...]
    """The signals that have asked for it."""
    ranks: tuple[int, ...]
    """The ranks that still run; empty if they are being started."""
    grace: RankGrace
    left_s: float
    """The rest of the grace."""


class Killed(msgspec.Struct, frozen=True):
    """Ranks were killed because they had not ended after a stop was asked for."""

    signal: int
    """The signal that asked for the stop."""
    ranks: tuple[int, ...]
    grace: RankGrace
    is_impatient: bool
    """Whether a second SIGINT killed them, before the end of their grace."""
    places: Mapping[int, str] = {}
    """The places in their scripts at which these ranks stood, as far as they have told."""


Outcome = Succeeded | Failed | FailedElsewhere | NodesLost | Obeyed | Killed


def judge(
    ranks: Sequence[RankSeen],
    stops: Sequence[int],
    *,
    has_patience: bool,
    is_alone: bool = True,
    has_said_stopped: bool = False,
) -> Succeeded | Failed | Obeyed | None:
    """Returns the outcome for ranks of which some failed; None to wait for the others. Pure.

    `stops` are the signals that asked for an end. `has_patience`: the root cause may still appear. `is_alone`: the
    cause cannot be on another node. `has_said_stopped`: a training has said that it stops on request.
    """
    first = first_failure(ranks, stops)
    if first is None or first.code is None:
        return None
    kind = kind_of(first, stops)
    if kind is FailureKind.OBEYED:
        obedience = _judge_obedience(ranks, stops, has_patience=has_patience)
        is_stop = obedience is not None and has_said_stopped and all(map(_is_stopped_wrapper, failed(ranks)))
        return Succeeded(was_stopped=True) if is_stop else obedience
    if has_patience and (may_change(ranks, stops) or (kind is FailureKind.CONSEQUENCE and not is_alone)):
        return None
    stuck = stuck_after_failure(ranks) if kind is FailureKind.CONSEQUENCE else None
    return Failed(stuck or first)


def _judge_obedience(ranks: Sequence[RankSeen], stops: Sequence[int], *, has_patience: bool) -> Obeyed | None:
    obeyed = [seen for seen in ranks if kind_of(seen, stops) is FailureKind.OBEYED]
    has_consequences = any(seen not in obeyed for seen in failed(ranks))
    is_running = any(seen.code is None for seen in ranks)
    # A rank that still runs may be saving, and has its grace, unless others have begun to fail because of a lost peer.
    if is_running and (has_patience or not has_consequences):
        return None
    return Obeyed(_signal_of(obeyed[0], stops), tuple(seen.rank for seen in obeyed))


def _is_stopped_wrapper(seen: RankSeen) -> bool:
    """Returns whether a training's wrapper died of a stop, and nothing shows that the training failed after that."""
    has_failed_later = seen.traceback_s is not None and seen.traceback_s > seen.ended_s
    return seen.code in (-signal.SIGTERM, 128 + signal.SIGTERM) and not has_failed_later


def _signal_of(seen: RankSeen, stops: Sequence[int]) -> int:
    return next(number for number in stops if seen.code in (-number, 128 + number))
