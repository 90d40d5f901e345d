"""Chooses the moments at which a training is disturbed."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core_sdk._ground.records import Report
from core_sdk.core._preempt._disturbance import Disturbance, How

MOMENTS = ("middle", "kill", "validation", "twice", "first", "epoch-end", "in-validation", "kill-in-save", "sigterm")
"""The names of all moments, in the order in which they are tried."""
_LEAST_VALIDATION_S = 0.2
"""A shorter validation is over before a stop in its middle is heard."""


@dataclass(frozen=True)
class Moment:
    name: str
    words: str
    """The moment in words: `stop after step 40`."""
    disturbances: tuple[Disturbance, ...]
    """One for each attempt, in order."""


def check_moments(moments: Collection[str | int]) -> list[str | int]:
    """Returns the moments. Raises `ValueError` for a name that is none."""
    for each in moments:
        if isinstance(each, str) and each not in MOMENTS:
            raise ValueError(f"{each!r} is no moment: give the number of a step, or one of {', '.join(MOMENTS)}")
    return list(moments)


def choose_moments(
    reports: Sequence[Report],
    num_saves: int | None,
    wanted: Collection[str | int],
    how: How = "stop",
    *,
    num_random: int = 0,
    seed: int = 1,
) -> list[Moment]:
    """Returns the wanted moments of a training that has reported and saved this undisturbed. Pure.

    The last report is the end of what is compared, so that nothing is disturbed there. An epoch is taken to end before
    a validation. A number is a step, and `how` says what happens there. `num_saves` is None if the script goes on by
    files of its own. The seed chooses the random moments, whose steps are all different.
    """
    steps = {each.steps_completed: each for each in reversed(reports[:-1])}
    at_steps = [_moment(f"step-{each}", how, steps[each]) for each in wanted if isinstance(each, int) and each in steps]
    named = {each.name: each for each in _named_moments(reports, num_saves)}
    drawn = _random_moments(list(steps.values()), num_random, seed, can_be_killed=num_saves != 0)
    return [*at_steps, *(named[each] for each in MOMENTS if each in wanted and each in named), *drawn]


def _named_moments(reports: Sequence[Report], num_saves: int | None) -> list[Moment]:
    usable = [each for each in reports[:-1] if each.group != "validation"]
    if not usable:
        return []
    first, middle = usable[0], usable[len(usable) // 2]
    moments = [_moment("middle", "stop", middle), *_at_validations(reports)]
    if num_saves is not None:  # else it may be asked to stop by a SIGTERM only, which ends it before its first save
        moments.append(_moment("first", "stop", first))
    if len(usable) > 3:
        early, late = usable[len(usable) // 3], usable[len(usable) // 3 + 1]
        disturbances = tuple(Disturbance("stop", each.steps_completed, each.group) for each in (early, late))
        words = f"stop after step {early.steps_completed}, and again after step {late.steps_completed}"
        moments.append(Moment("twice", words, disturbances))
    moments.append(_moment("sigterm", "sigterm", usable[len(usable) * 3 // 4]))
    if num_saves != 0:
        moments.append(_moment("kill", "kill", usable[len(usable) * 5 // 8]))
    if num_saves:
        in_save = Disturbance("kill", number=max(1, num_saves // 2), in_save=True)
        moments.append(Moment("kill-in-save", f"kill -9 in save {in_save.number} of {num_saves}", (in_save,)))
    return moments


def _at_validations(reports: Sequence[Report]) -> list[Moment]:
    validations = [number for number, each in enumerate(reports[:-1]) if each.group == "validation" and number]
    if not validations:
        return []
    before, after = reports[validations[0] - 1], reports[validations[0]]
    moments = [
        _moment("epoch-end", "stop", before, "before a validation"),
        _moment("validation", "stop", after, "after a validation"),
    ]
    longest = max(validations, key=lambda number: reports[number].time - reports[number - 1].time)
    last = reports[longest - 1]
    took_s = reports[longest].time - last.time
    if took_s >= _LEAST_VALIDATION_S:
        stop = Disturbance("stop", last.steps_completed, last.group, delay_s=took_s / 2)
        words = f"stop {took_s / 2:.1f} s after step {last.steps_completed}, in a validation"
        moments.append(Moment("in-validation", words, (stop,)))
    return moments


def _random_moments(reports: Sequence[Report], num: int, seed: int, *, can_be_killed: bool) -> list[Moment]:
    draws = random.Random(seed)
    kinds: tuple[How, ...] = ("stop", "sigterm", "kill") if can_be_killed else ("stop", "sigterm")
    chosen = draws.sample(reports, min(num, len(reports)))
    return [_moment(f"random-{number}", draws.choice(kinds), each) for number, each in enumerate(chosen, 1)]


def _moment(name: str, how: How, report: Report, remark: str = "") -> Moment:
    verb = {"stop": "stop", "sigterm": "SIGTERM", "kill": "kill -9"}[how]
    words = f"{verb} after step {report.steps_completed}" + (f", {remark}" if remark else "")
    return Moment(name, words, (Disturbance(how, report.steps_completed, report.group),))
