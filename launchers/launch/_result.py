"""The result of a launch: its exit status, and the launcher's own messages."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from core_sdk._machine.processes import (
    STOPPED,
    WELL,
    Failed,
    FailedElsewhere,
    FailureKind,
    Killed,
    NodesLost,
    Obeyed,
    Outcome,
    Stopping,
    Succeeded,
    cause_of,
    exit_code,
    failure_report,
    kind_of,
    signal_name,
)
from core_sdk._machine.processes.output import Outlet

_STDERR = 2
_MOST_PLACES = 8
MARK = "[core-sdk] "
"""The beginning of each line of the launcher's own."""


class LaunchResult(msgspec.Struct, frozen=True):
    code: int
    messages: tuple[str, ...] = ()
    is_of_ranks: bool = False
    """Whether ranks have run, so that the other nodes can have learnt how they ended."""
    is_consequence: bool = False
    """Whether another node's failure seems to be the cause."""
    is_ended_by_head: bool = False
    """Whether the head of a launch on several hosts ended this host's part, after another host's failure."""
    reason: str = ""
    """The reason why the training failed, in one line for the records of its trial."""

    @property
    def is_failure(self) -> bool:
        return self.code not in WELL


def overall_result(results: Sequence[LaunchResult]) -> LaunchResult:
    """Returns the result of a launch on several hosts: the result of the host that failed first.

    `results` are in order of time.
    """
    failures = [result for result in results if result.is_failure]
    if failures:
        return min(failures, key=lambda result: (result.is_ended_by_head, result.is_consequence))
    stopped = [result for result in results if result.code == STOPPED]
    return next(iter([*stopped, *results]), LaunchResult(0))


def result_of(outcome: Outcome, num_ranks: int, host: str) -> LaunchResult:
    is_consequence = isinstance(outcome, FailedElsewhere) or (
        isinstance(outcome, Failed) and kind_of(outcome.first) is FailureKind.CONSEQUENCE
    )
    return replace(_result_of(outcome, num_ranks, host), is_of_ranks=True, is_consequence=is_consequence)


def result_before_start(number: int) -> LaunchResult:
    return _result_of_signal(number, f"{signal_name(number)} came before the ranks were started: none runs")


def describe_stopping(stopping: Stopping) -> str:
    """Says what a stop waits for."""
    first, grace = signal_name(stopping.signals[0]), stopping.grace
    whom = _ranks(stopping.ranks) if stopping.ranks else "the ranks, which are being started,"
    words = f"stopping after {first}: waiting up to {round(stopping.left_s, 1):g} s ({grace}) for {whom} to end"
    return words + ("; Ctrl-C again kills them" if signal.SIGINT in stopping.signals else "")


def describe_lost(lost: NodesLost) -> str:
    nodes = f"node {lost.names[0]}" if len(lost.names) == 1 else f"nodes {', '.join(lost.names)}"
    return f"the launcher of {nodes} is lost: its host is down or cut off, or it was killed"


def marked(lines: Iterable[str]) -> str:
    return "".join(f"{MARK}{line}\n" for line in lines)


def say(lines: Iterable[str], is_hurried: threading.Event | None = None) -> None:
    """Writes to stderr, since stdout is the script's. Waits for the reader; after `is_hurried` is set, only seconds."""
    outlet = Outlet(_STDERR, is_hurried or threading.Event())
    outlet.write(marked(lines).encode(errors="backslashreplace"))
    outlet.close()


def _result_of(outcome: Outcome, num_ranks: int, host: str) -> LaunchResult:
    match outcome:
        case Succeeded(was_stopped=False):
            return LaunchResult(0)
        case Succeeded():
            return LaunchResult(STOPPED, (f"stopped as asked, to be continued; exit code {STOPPED}",))
        case Failed(first):
            # A rank that raised an error and hung would have exited with 1, as Python does after an exception.
            # One that ended by the status of a stop, for which nobody had asked, must not be taken for stopped.
            code = 1 if first.code is None or first.code in WELL else exit_code(first.code)
            lines = failure_report(first, num_ranks, host, code)
            return LaunchResult(code, tuple(lines), reason=f"rank {first.rank} {cause_of(first)}")
        case FailedElsewhere(code, said):
            return LaunchResult(code, ("another node's launcher says:", *said), reason=next(iter(said), ""))
        case NodesLost():
            lost = describe_lost(outcome)
            return LaunchResult(1, (f"{lost}; exit code 1",), reason=lost)
        case Obeyed(signal.SIGINT, ranks):
            return _result_of_signal(signal.SIGINT, f"cancelled by SIGINT (Ctrl-C), of which {_ranks(ranks)} died")
        case Obeyed(number, ranks):
            return _result_of_signal(number, f"{_ranks(ranks)} died of {signal_name(number)}, which was handed on")
        case Killed(number, ranks, is_impatient=True):
            return _result_of_signal(number, f"{_ranks(ranks)} did not get to an end: killed by a second SIGINT")
        case Killed(number, ranks, grace):
            code = exit_code(-signal.SIGKILL)
            reason = f"{_ranks(ranks)} had not ended in the grace after {signal_name(number)} ({grace}): killed"
            places = [f"rank {rank} stood in {place}" for rank, place in outcome.places.items()]
            more = ("the output of the other ranks says where they stood",) if len(places) > _MOST_PLACES else ()
            messages = (f"{reason}; exit code {code}", *places[:_MOST_PLACES], *more)
            return LaunchResult(code, messages, reason="; ".join([reason, *places[:1]]))


def _result_of_signal(number: int, reason: str) -> LaunchResult:
    code = exit_code(-number)
    return LaunchResult(code, (f"{reason}; exit code {code}",), reason=reason)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
