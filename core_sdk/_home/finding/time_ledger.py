"""Where the time of a trial, of an experiment or of a home went, and how often to save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from core_sdk._home.rows import TimeRow
from core_sdk._home.time_spent import PHASES, TrialTime, best_interval
from core_sdk._home.view import View

# With fewer failures of its own, a trial is judged by those of the whole home.
_ENOUGH_FAILURES = 3
# Around the best interval the cost hardly changes: within this factor it is less than a tenth above the least one.
_FACTOR = 1.5


@dataclass(frozen=True)
class TimeLedger:
    """The time of some trials together: that of a trial that runs for an hour beside another one counts as well."""

    num_trials: int
    time: TrialTime
    num_attempts: int
    num_failures: int
    saving_ms: int
    """The time for which saves have held up the training, also where it was lost."""
    num_saves: int
    """The saves of which this is known."""
    interval_s: float | None
    """The mean time of the training between two checkpoints; None without any."""
    failure_s: float | None
    """The mean time of attempts until one of them fails; None if none has failed."""
    are_failures_of_home: bool
    """Whether `failure_s` is that of all trials of the home, since these have failed too rarely."""

    @property
    def shares(self) -> dict[str, float]:
        """The share of each phase in the time, without that in which a trial was stopped on purpose."""
        whole = self.time.wall - self.time.stopped
        return {name: getattr(self.time, name) / whole if whole else 0.0 for name in PHASES if name != "stopped"}

    @property
    def save_s(self) -> float | None:
        """The mean time for which a save holds up the training."""
        return self.saving_ms / 1000 / self.num_saves if self.num_saves else None

    @property
    def best_interval_s(self) -> float | None:
        """The time between two saves that loses the least time; None as long as a save or a failure is not known."""
        if self.save_s is None or self.failure_s is None:
            return None
        return best_interval(self.save_s, self.failure_s)

    @property
    def is_interval_good(self) -> bool:
        """Whether another interval would hardly save time, or whether that is not known."""
        best, interval = self.best_interval_s, self.interval_s
        return best is None or interval is None or best / _FACTOR <= interval <= best * _FACTOR

    def words(self) -> str:
        """Says in one line where the time went, and how often to save if that would save time."""
        shares = self.shares
        told = [f"{_percent(shares['training'])} training"]
        if self.time.lost:
            told.append(f"{_percent(shares['lost'])} lost to {_counted(self.num_failures, 'failure')}")
        others = sorted((name for name in PHASES if name not in _TOLD_APART), key=lambda name: -shares[name])
        told += [f"{_percent(shares[name])} {_WORDS.get(name, name)}" for name in others if shares[name] >= 0.01]
        saving = f"saving costs {_percent(shares['saving'])}" if self.num_saves else ""
        if not self.is_interval_good and self.best_interval_s is not None and self.interval_s is not None:
            rather = f"save every {brief_duration(self.best_interval_s)} instead of {brief_duration(self.interval_s)}"
            saving = f"{saving}: {rather}"
        return "; ".join(filter(None, (*told, saving)))

    def as_values(self) -> dict[str, Any]:
        """Returns the ledger for programs."""
        return {
            "num_trials": self.num_trials,
            "wall_ms": self.time.wall,
            "phases_ms": dict(vars(self.time)),
            "shares": self.shares,
            "num_attempts": self.num_attempts,
            "num_failures": self.num_failures,
            "num_saves": self.num_saves,
            "save_s": self.save_s,
            "interval_s": self.interval_s,
            "failure_s": self.failure_s,
            "are_failures_of_home": self.are_failures_of_home,
            "best_interval_s": self.best_interval_s,
            "words": self.words(),
        }


_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
_TOLD_APART = ("training", "lost", "saving", "stopped")
_WORDS = {"waiting": "waiting for slots"}


def read_ledger(view: View, *, trial_id: int | None = None, experiment_id: int | None = None) -> TimeLedger:
    """Reads the ledger of a trial, of the trials of an experiment, or of all trials."""
    rows = view.times(experiment_id, trial_ids=None if trial_id is None else [trial_id])
    is_of_home = trial_id is None and experiment_id is None
    has_enough = is_of_home or sum(row.num_failures for row in rows) >= _ENOUGH_FAILURES
    needs_home = not has_enough and any(row.num_saves for row in rows)
    return ledger(rows, view.times() if needs_home else rows, are_failures_of_home=needs_home)


def ledger(rows: Sequence[TimeRow], failing: Sequence[TimeRow], *, are_failures_of_home: bool = False) -> TimeLedger:
    """Adds up the times of trials. `failing` are those whose failures count."""
    num_checkpoints = sum(row.num_checkpoints for row in rows)
    num_failures = sum(row.num_failures for row in failing)
    between_ms = sum(row.work_ms - row.saving_ms for row in rows)
    return TimeLedger(
        num_trials=len(rows),
        time=reduce(add, (row.time for row in rows), TrialTime()),
        num_attempts=sum(row.num_attempts for row in rows),
        num_failures=sum(row.num_failures for row in rows),
        saving_ms=sum(row.saving_ms for row in rows),
        num_saves=sum(row.num_saves for row in rows),
        interval_s=between_ms / 1000 / num_checkpoints if num_checkpoints else None,
        failure_s=sum(row.attempts_ms for row in failing) / 1000 / num_failures if num_failures else None,
        are_failures_of_home=are_failures_of_home,
    )


def brief_duration(seconds: float) -> str:
    """Returns a duration in its largest unit, with two digits: `9 min`, `1.5 h`."""
    unit, length = next((each for each in _UNITS if seconds >= each[1]), ("s", 1.0))
    number = seconds / length
    return f"{number:.2g} {unit}" if number < 10 else f"{number:.0f} {unit}"


def _percent(share: float) -> str:
    digits = 1 if 0 < share < 0.0995 else 0
    return f"{100 * share:.{digits}f} %"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
