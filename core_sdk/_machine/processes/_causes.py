"""Judges which rank failed first, from what was seen of each. Pure functions of values.

The first rank to die is not always the first that failed. A failing rank closes its connections before it exits, so
ranks that lose it as their peer can die sooner; and an exception is raised earlier than the exit to which it leads. So
ranks are ordered by the time of their traceback, if they wrote one, and ranks that only lost a peer come last.
"""

from __future__ import annotations

import enum
import re
import signal
from collections.abc import Collection, Sequence

import msgspec

TRACEBACK = b"Traceback (most recent call last)"

STOPPED = 75
"""The exit status of a training or rank that stopped on request, to be resumed (EX_TEMPFAIL of sysexits.h)."""
WELL = (0, STOPPED)
ENDED_BY_STOP = tuple(code for number in (signal.SIGTERM, signal.SIGUSR1) for code in (-number, 128 + number))
"""The statuses of a process that a stop has ended: a rank that has left its Context does nothing else."""

# The texts that a rank writes when it has lost its peer. Each pattern names its library, because the loss of a
# connection of the script's own is a cause like any other.
_LOST_PEER = re.compile(
    rb"""
      gloo.*(closed\ by\ peer|reset\ by\ peer|broken\ pipe|connection\ refused|connectfullmesh|timed?\ ?out)
    | gloo::(io|timeout)exception
    | (nccl|rccl).*(remote\ (error|process)|closed\ by\ (remote\ )?peer|aborted|timeout|timed\ out|unhandled\ system)
    | watchdog.*(collective|timeout)
    | dist(network|store)error
    | tcpstore.*(reset|refused|broken\ pipe|closed|timed?\ ?out)
    | failed\ to\ recv,\ got\ 0\ bytes
    | horovodinternalerror | horovod\ has\ been\ shut\ down
    | ^(\[rank\d+\]:\ )?(\w+\.)*rank(died|failed|left)error\b
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)

# At the start of a line, because a traceback that another rank's error quotes is indented.
_OWN_TRACEBACK = re.compile(rb"^(\[rank\d+\]:\ )?" + re.escape(TRACEBACK), re.MULTILINE)
_EXCEPTION_STATUS = 1
# A running rank whose traceback is older than this, when another fails, has handled its exception.
_ON_ITS_WAY_OUT_S = 10.0


class FailureKind(enum.IntEnum):
    """The kind of a rank's failure. The lower the number, the nearer it is to the root cause."""

    CAUSE = 0
    OBEYED = 1
    """The rank died of the signal that was passed on to it."""
    CONSEQUENCE = 2
    """The rank lost its peer."""


class RankSeen(msgspec.Struct, frozen=True):
    """The observations of one rank of this node. Times are `time.monotonic()`."""

    rank: int
    pid: int
    code: int | None = None
    """Exit status, -N for death by signal N, None while it runs."""
    ended_s: float = 0.0
    traceback_s: float | None = None
    """The time at which the last traceback on its stderr began."""
    stderr: bytes = b""
    """The last part of its stderr."""


def first_failure(ranks: Sequence[RankSeen], signals: Collection[int] = ()) -> RankSeen | None:
    """Returns the rank that failed first, or None. `signals` are those that were passed on to the ranks."""
    return min(failed(ranks), key=lambda seen: (kind_of(seen, signals), _failed_s(seen), seen.rank), default=None)


def failed(ranks: Sequence[RankSeen]) -> list[RankSeen]:
    return [seen for seen in ranks if seen.code not in (None, *WELL)]


def kind_of(seen: RankSeen, signals: Collection[int] = ()) -> FailureKind:
    if any(seen.code in (-number, 128 + number) for number in signals):
        return FailureKind.OBEYED
    return FailureKind.CONSEQUENCE if _LOST_PEER.search(_last_traceback(seen.stderr)) else FailureKind.CAUSE


def may_change(ranks: Sequence[RankSeen], signals: Collection[int] = ()) -> bool:
    """Returns whether a rank that still runs may turn out to have failed before `first_failure`."""
    first = first_failure(ranks, signals)
    running = [seen for seen in ranks if seen.code is None]
    if first is None or not running:
        return False
    return kind_of(first, signals) is not FailureKind.CAUSE or any(_is_on_its_way_out(seen, first) for seen in running)


def stuck_after_failure(ranks: Sequence[RankSeen]) -> RankSeen | None:
    """Returns a rank that raised an error of its own and did not end, or None.

    It is the cause if all ranks that ended only lost a peer.
    """
    stuck = [seen for seen in ranks if seen.code is None and _raised_itself(seen)]
    return min(stuck, key=lambda seen: (_traceback_s(seen), seen.rank), default=None)


def _failed_s(seen: RankSeen) -> float:
    # Any other status, or a signal, need not come from the traceback, whose exception may have been handled.
    if seen.code == _EXCEPTION_STATUS and seen.traceback_s is not None:
        return min(seen.traceback_s, seen.ended_s)
    return seen.ended_s


def _is_on_its_way_out(seen: RankSeen, first: RankSeen) -> bool:
    return _raised_itself(seen) and _failed_s(first) - _ON_ITS_WAY_OUT_S < _traceback_s(seen) < _failed_s(first)


def _raised_itself(seen: RankSeen) -> bool:
    return seen.traceback_s is not None and not _LOST_PEER.search(_last_traceback(seen.stderr))


def _traceback_s(seen: RankSeen) -> float:
    return seen.ended_s if seen.traceback_s is None else seen.traceback_s


def _last_traceback(stderr: bytes) -> bytes:
    """Returns the output from the last traceback on. An earlier loss of a peer may have been handled."""
    starts = [found.start() for found in _OWN_TRACEBACK.finditer(stderr)]
    return stderr[starts[-1] :] if starts else stderr
