"""Puts the attempts of a trial together: each millisecond of its wall time belongs to one phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from core_sdk._home.time_spent._attempt import AttemptClock, TimeMark

Gap = Literal["down", "stopped", "waiting"]
"""What the time after an attempt is until the next one is asked for."""

PHASES = ("training", "lost", "waiting", "starting", "saving", "loading", "validating", "down", "stopped")


class AttemptSpan(msgspec.Struct, frozen=True):
    """An attempt, as the account of its trial needs it."""

    clock: AttemptClock
    """Its clock at its end, or now if it runs."""
    gap: Gap = "down"
    is_lost: bool = False
    """Whether a later attempt went on from before its end."""
    kept: TimeMark | None = None
    """If it is lost, the last checkpoint that was not; None if all of its work is lost."""


@dataclass(frozen=True)
class TrialTime:
    """The phases of a trial, in milliseconds. They are disjoint, and add up to `wall`."""

    training: int = 0
    lost: int = 0
    """Work that a later attempt has done again."""
    waiting: int = 0
    """Waiting for slots, or in a scheduler's queue."""
    starting: int = 0
    saving: int = 0
    """As far as the training has waited for a save."""
    loading: int = 0
    validating: int = 0
    down: int = 0
    """Between an attempt that has failed and the next one."""
    stopped: int = 0
    """Stopped on purpose."""

    @property
    def wall(self) -> int:
        return sum(vars(self).values())

    def __add__(self, other: TrialTime) -> TrialTime:
        return TrialTime(**{name: value + getattr(other, name) for name, value in vars(self).items()})


def trial_time(created: int, attempts: Sequence[AttemptSpan], until: int | None = None) -> TrialTime:
    """Returns the time of a trial from its creation to the end of its last attempt.

    `created` and `until` are milliseconds since the Unix epoch. If the trial waits for its next attempt, `until` is the
    present time. The first attempt may have been asked for before the trial was created: then its time begins there.
    """
    spent = dict.fromkeys(PHASES, 0)
    attempts = [attempt for attempt in attempts if attempt.clock.begun is not None]  # of others nothing is known
    at = min(
        [created, *(time for time in _beginning(attempts[0].clock) if time is not None)] if attempts else [created]
    )
    gap: str = "starting"
    for attempt in attempts:
        asked, launched, begun = _beginning(attempt.clock)
        launched = begun if launched is None else min(launched, begun)
        asked = launched if asked is None else min(asked, launched)
        for phase, end in ((gap, asked), ("waiting", launched), ("starting", begun)):
            passed = max(0, end - at)
            spent[phase] += passed
            at += passed
        for phase, duration in _shortened(_of_attempt(attempt), at - begun).items():
            spent[phase] += duration
            at += duration
        gap = attempt.gap
    if until is not None:
        spent["waiting"] += max(0, until - at)
    return TrialTime(**spent)


def _beginning(clock: AttemptClock) -> tuple[int | None, int | None, int]:
    return clock.asked, clock.launched, clock.now if clock.begun is None else clock.begun


def _of_attempt(attempt: AttemptSpan) -> dict[str, int]:
    """Returns the phases of an attempt since its first record."""
    clock = attempt.clock
    counted = {
        "starting": clock.starting,
        "training": clock.training,
        "loading": clock.loading,
        "validating": clock.validating,
        "saving": clock.saving,
        "lost": 0,
    }
    if not attempt.is_lost:
        return counted
    kept = attempt.kept
    if kept is None:
        return {"starting": clock.starting, "lost": clock.work}
    left = min(max(0, clock.now - kept.at), clock.work)
    since = {
        "loading": clock.loading - kept.loading,
        "validating": clock.validating - kept.validating,
        "saving": clock.saving - kept.saving,
    }
    for phase, most in (*since.items(), *((phase, left) for phase in ("training", *since))):
        moved = min(max(0, most), counted[phase], left)
        counted[phase] -= moved
        counted["lost"] += moved
        left -= moved
    return counted


def _shortened(counted: dict[str, int], overlap: int) -> dict[str, int]:
    """Takes off the time by which an attempt began before the one before it had ended, as clocks tell it."""
    if overlap <= 0:
        return counted
    for phase in counted:
        taken = min(counted[phase], overlap)
        counted[phase] -= taken
        overlap -= taken
    return counted
