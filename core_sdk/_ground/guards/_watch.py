"""Watches the reports of an attempt by guards, and says what is to be done about trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core_sdk._ground.guards._rules import Rule

Action = Literal["alert", "stop", "go_back"]


@dataclass(frozen=True)
class Guard:
    """A rule over a metric, and what is done when the metric breaks it."""

    group: str
    metric: str
    make_rule: Callable[[], Rule]
    """Makes a rule that has seen nothing, for an attempt that begins."""
    action: Action
    max_times: int = 3
    """The number of times that it may go back in one trial; after that it stops."""


@dataclass(frozen=True)
class Trouble:
    """A finding of a guard."""

    guard: int
    """The number of the guard, in the order in which they were given."""
    action: Action
    steps: int
    """The step of the report."""
    good_until: int
    """The step of the last report of the metric that was no trouble, or the one from which the attempt went on."""
    reason: str


class MetricWatch:
    """The guards of one attempt. Fed with the same reports in the same order, it finds the same trouble."""

    def __init__(self, guards: Sequence[Guard], resumed_steps: int, times_back: Mapping[int, int] = {}) -> None:
        """`times_back` says how often each guard has gone back in earlier attempts of the trial, by its number."""
        self._guards = guards
        self._rules = [guard.make_rule() for guard in guards]
        self._good_until = [resumed_steps] * len(guards)
        self._times_back = times_back
        self._silent: set[int] = set()
        self._is_over = False

    def feed(self, group: str, steps: int, metrics: Mapping[str, float]) -> list[Trouble]:
        """Returns the trouble that a report tells of. After one for which the attempt ends, there is no more."""
        found: list[Trouble] = []
        for number, (guard, rule) in enumerate(zip(self._guards, self._rules, strict=True)):
            if self._is_over or guard.group != group or guard.metric not in metrics:
                continue
            if not (words := rule.judge(steps, float(metrics[guard.metric]))):
                self._good_until[number] = max(self._good_until[number], steps)
                self._silent.discard(number)
            elif number not in self._silent:  # one alert for all reports of one trouble
                self._silent.add(number)
                action = self._action(number)
                self._is_over = action != "alert"
                found.append(Trouble(number, action, steps, self._good_until[number], f"{guard.metric} {words}"))
        return found

    def _action(self, number: int) -> Action:
        guard = self._guards[number]
        is_spent = self._times_back.get(number, 0) >= guard.max_times
        return "stop" if guard.action == "go_back" and is_spent else guard.action


def newest_before(trouble: Trouble, checkpoints: Iterable[tuple[str, int]]) -> str | None:
    """Returns the newest checkpoint that holds nothing of the trouble; None if the training begins again.

    `checkpoints` are storage ids and steps, in the order in which they were stored.
    """
    good = [(steps, place, storage_id) for place, (storage_id, steps) in enumerate(checkpoints)]
    return max((each for each in good if each[0] <= trouble.good_until), default=(0, 0, None))[2]
