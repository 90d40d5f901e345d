"""Chooses the moments at which a training is disturbed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core_sdk._ground.records import Report
from core_sdk.core._preempt._disturbance import Disturbance, How

MOMENTS = ("first", "middle", "epoch-end", "validation", "twice", "sigterm", "kill", "kill-in-save")
"""The names of all moments."""


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
    reports: Sequence[Report], num_saves: int, wanted: Collection[str | int], how: How = "stop"
) -> list[Moment]:
    """Returns the wanted moments of a training that has reported and saved this undisturbed. Pure.

    The last report is the end of what is compared, so that nothing is disturbed there. An epoch is taken to end before
    a validation. A number is a step, and `how` says what happens there.
    """
    steps = {each.steps_completed: each for each in reversed(reports[:-1])}
    at_steps = [_moment(f"step-{each}", how, steps[each]) for each in wanted if isinstance(each, int) and each in steps]
    return at_steps + [each for each in _named_moments(reports, num_saves) if each.name in wanted]


def _named_moments(reports: Sequence[Report], num_saves: int) -> list[Moment]:
    usable = [each for each in reports[:-1] if each.group != "validation"]
    if not usable:
        return []
    validations = [number for number, each in enumerate(reports[:-1]) if each.group == "validation" and number]
    first, middle = usable[0], usable[len(usable) // 2]
    moments = [_moment("first", "stop", first), _moment("middle", "stop", middle)]
    if validations:
        number = validations[0]
        moments += [
            _moment("epoch-end", "stop", reports[number - 1], "before a validation"),
            _moment("validation", "stop", reports[number], "after a validation"),
        ]
    if len(usable) > 3:
        early, late = usable[len(usable) // 3], usable[len(usable) // 3 + 1]
        disturbances = tuple(Disturbance("stop", each.steps_completed, each.group) for each in (early, late))
        words = f"stop after step {early.steps_completed}, and again after step {late.steps_completed}"
        moments.append(Moment("twice", words, disturbances))
    moments.append(_moment("sigterm", "sigterm", usable[len(usable) * 3 // 4]))
    if num_saves:
        moments.append(_moment("kill", "kill", usable[len(usable) * 5 // 8]))
        in_save = Disturbance("kill", number=max(1, num_saves // 2), in_save=True)
        moments.append(Moment("kill-in-save", f"kill -9 in save {in_save.number} of {num_saves}", (in_save,)))
    return moments


def _moment(name: str, how: How, report: Report, remark: str = "") -> Moment:
    verb = {"stop": "stop", "sigterm": "SIGTERM", "kill": "kill -9"}[how]
    words = f"{verb} after step {report.steps_completed}" + (f", {remark}" if remark else "")
    return Moment(name, words, (Disturbance(how, report.steps_completed, report.group),))
