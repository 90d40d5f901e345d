"""How a launch ends: the exit status, and the last words."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from core_sdk.processes import (
    STOPPED,
    Failed,
    FailedElsewhere,
    Killed,
    Kind,
    NodesLost,
    Obeyed,
    Outcome,
    RankLocation,
    Succeeded,
    cause_of,
    exit_code,
    failure_report,
    kind_of,
    signal_name,
)


@dataclass(frozen=True)
class Ending:
    code: int
    words: tuple[str, ...] = ()
    is_of_ranks: bool = False
    """Ranks have run, and the other nodes can have learnt of it from them."""
    is_suffered: bool = False
    """From another node's failure, or so it looks."""
    reason: str = ""
    """In a line, of what the training failed: for its trial."""

    def leave(self, path: Path) -> bool:
        """In a file, as JSON. Returns whether that was possible."""
        try:
            path.write_text(json.dumps(asdict(self)))
        except OSError:
            return False
        return True


def ending_of(outcome: Outcome, num_ranks: int, host: str) -> Ending:
    is_suffered = isinstance(outcome, FailedElsewhere) or (
        isinstance(outcome, Failed) and kind_of(outcome.first) is Kind.CONSEQUENCE
    )
    return replace(_ending_of(outcome, num_ranks, host), is_of_ranks=True, is_suffered=is_suffered)


def _ending_of(outcome: Outcome, num_ranks: int, host: str) -> Ending:
    match outcome:
        case Succeeded(was_stopped=False):
            return Ending(0)
        case Succeeded():
            return Ending(STOPPED, (f"stopped as asked, to be continued; exit code {STOPPED}",))
        case Failed(first):
            # A rank that did not get as far as its exit would have ended as Python does after an exception.
            code = 1 if first.code is None else exit_code(first.code)
            lines = failure_report(RankLocation(first.rank, num_ranks, host, first.pid), first, code)
            return Ending(code, tuple(lines), reason=f"rank {first.rank} {cause_of(first)}")
        case FailedElsewhere(code, said):
            return Ending(code, ("another node's launcher says:", *said), reason=next(iter(said), ""))
        case NodesLost():
            return Ending(1, (f"{loss_of(outcome)}; exit code 1",), reason=loss_of(outcome))
        case Obeyed(signal.SIGINT, ranks):
            return _ending_by_signal(signal.SIGINT, f"cancelled by SIGINT (Ctrl-C), of which {_ranks(ranks)} died")
        case Obeyed(number, ranks):
            return _ending_by_signal(number, f"{_ranks(ranks)} died of {signal_name(number)}, which was handed on")
        case Killed(number, ranks, is_impatient=True):
            return _ending_by_signal(number, f"{_ranks(ranks)} did not get to an end: killed by a second SIGINT")
        case Killed(number, ranks):
            code = exit_code(-signal.SIGKILL)
            words = f"{_ranks(ranks)} had not ended in the grace after {signal_name(number)}: killed"
            return Ending(code, (f"{words}; exit code {code}",), reason=words)


def loss_of(lost: NodesLost) -> str:
    """In words."""
    nodes = f"node {lost.names[0]}" if len(lost.names) == 1 else f"nodes {', '.join(lost.names)}"
    return f"the launcher of {nodes} is lost: its host is down or cut off, or it was killed"


def ending_before_start(number: int) -> Ending:
    return _ending_by_signal(number, f"{signal_name(number)} came before the ranks were started: none runs")


def _ending_by_signal(number: int, words: str) -> Ending:
    code = exit_code(-number)
    return Ending(code, (f"{words}; exit code {code}",), reason=words)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
