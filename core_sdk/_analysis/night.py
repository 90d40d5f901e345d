"""Lists on one screen what has happened in a home since somebody last looked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from core_sdk._ground.files import write_atomically
from core_sdk._ground.records import decode_file, encode_file
from core_sdk._home.finding.best import best_trial
from core_sdk._home.finding.time_ledger import brief_duration, ledger
from core_sdk._home.folders import Home
from core_sdk._home.rows import TrialRow
from core_sdk._home.view import View

A_NIGHT_S = 12 * 3600.0
"""The time for which it goes back if nobody has looked before."""
_MOST_BYTES = 2000
_MOST_NAMED = 6
_MOST_CHARS = 160
_STATES = {"ERROR": "failed", "COMPLETED": "ended", "PAUSED": "paused", "CANCELED": "canceled"}
_ORDER = ("failed", "stalled", "went back", "paused", "canceled", "ended", "best", "waiting", "running")


@dataclass(frozen=True)
class Night:
    """The events between two times, in words by kind, the most urgent kind first."""

    since: float
    until: float
    happened: dict[str, list[str]] = field(default_factory=dict)
    time: str = ""
    """The time ledger of the trials that have run since; it counts all that they have run."""

    def text(self) -> str:
        """Returns it in at most 2 KB. What is left out is counted."""
        lines = [f"since {brief_duration(self.until - self.since)} ago"]
        if not self.happened:
            lines.append("nothing has happened, and nothing runs")
        for kind, happened in self.in_order():
            told = [each[:_MOST_CHARS] for each in happened]
            lines.append(f"{kind} ({len(told)})")
            lines += [f"  {each}" for each in told[:_MOST_NAMED]]
            if len(told) > _MOST_NAMED:
                lines.append(f"  and {len(told) - _MOST_NAMED} more")
        if self.time:
            lines.append(f"time: {self.time}")
        return _cut("\n".join(lines))

    def in_order(self) -> list[tuple[str, list[str]]]:
        """Returns what has happened by kind, the most urgent kind first."""
        return [(kind, self.happened[kind]) for kind in _ORDER if kind in self.happened]

    def as_values(self) -> dict[str, Any]:
        return {"since": self.since, "until": self.until, **self.happened, "time": self.time}


def read_night(home: Home, view: View, since: float, until: float, trial_ids: Collection[int] | None = None) -> Night:
    """Reads what has happened since, to these trials or to all."""
    rows = sorted(view.trials(trial_ids=trial_ids), key=lambda row: row.trial_id)
    changed = [row for row in rows if has_run(row, since)]
    night = Night(since, until)

    def note(kind: str, text: str) -> None:
        night.happened.setdefault(kind, []).append(text)

    for row in changed:
        for alert in view.alerts(row.trial_id):
            if alert.time >= since and alert.title == "went back":
                note("went back", f"{_name(row)} {alert.description}")
        note(_kind(row), _told(row))
    for experiment_id in sorted({row.experiment_id for row in changed if row.state not in ("ACTIVE", "QUEUED")}):
        best = best_trial(home, view, experiment_id)
        if best is not None and any(row.trial_id == best.trial_id for row in changed):
            name = next(row.experiment_name for row in changed if row.experiment_id == experiment_id)
            note("best", f"{name}: {best}")
    times = view.times(trial_ids=[row.trial_id for row in changed]) if changed else []
    time = ledger(times, times).words() if any(row.time.wall for row in times) else ""
    return Night(since, until, night.happened, time)


def has_run(row: TrialRow, since: float) -> bool:
    return row.state in ("ACTIVE", "QUEUED") or row.created >= since or (row.ended is not None and row.ended >= since)


def _kind(row: TrialRow) -> str:
    if row.state == "QUEUED":
        return "waiting"
    if row.state == "ACTIVE":
        return "stalled" if row.reason.startswith("stalled") else "running"
    return _STATES[row.state]


def _name(row: TrialRow) -> str:
    return f"trial {row.trial_id} ({row.name}, {row.experiment_name})"


def _told(row: TrialRow) -> str:
    step = f" at step {row.steps_completed:,}" if row.steps_completed else ""
    return f"{_name(row)}{step}{f': {row.reason}' if row.reason else ''}"


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= _MOST_BYTES:
        return text
    return encoded[: _MOST_BYTES - 4].decode(errors="ignore").rpartition("\n")[0] + "\n…"


class _Looked(msgspec.Struct):
    """`<home>/looked.json`."""

    time: float
    format: int = 1


def last_look(home: Home) -> float | None:
    """Returns the time at which somebody last looked; None if that is not known."""
    try:
        return decode_file((home.root / "looked.json").read_bytes(), _Looked).time
    except (OSError, ValueError):
        return None


def note_look(home: Home, time: float) -> None:
    """Keeps the time of a look."""
    write_atomically(home.root / "looked.json", encode_file(_Looked(time=time)))
