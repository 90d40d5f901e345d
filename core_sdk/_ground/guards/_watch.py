"""Watches the reports of an attempt by guards, and says what is to be done about trouble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from core_sdk._ground.guards._guard import Guard, GuardAction, place_of, rule_of


class Trouble(msgspec.Struct, frozen=True):
    """A finding of a guard."""

    guard: int
    """The number of the guard, in the order in which they were given."""
    action: GuardAction
    steps: int
    """The step of the report."""
    good_until: int
    """The step of the last report of the metric that was no trouble, or the one from which the attempt went on.

    It is one step less if the attempt had gone back to that step, and this is the first that is heard of the metric:
    then the checkpoint of that step was spoiled already, by what its guard had not seen. Of a metric that has not
    become better it is the step at which it was best.
    """
    reason: str


class MetricWatch:
    """The guards of one attempt. Fed with the same reports in the same order, it finds the same trouble."""

    def __init__(
        self,
        guards: Sequence[Guard],
        resumed_steps: int,
        times_back: Mapping[int, int] = {},
        *,
        has_gone_back: bool = False,
    ) -> None:
        """`times_back` says how often each guard has gone back in earlier attempts of the trial, by its number.

        With `has_gone_back`, that is how the trial has come to the checkpoint from which this attempt goes on.
        """
        self._guards = guards
        self._places = [place_of(guard) for guard in guards]
        self._rules = [rule_of(guard) for guard in guards]
        self._good_until = [resumed_steps] * len(guards)
        self._suspected = resumed_steps if has_gone_back else None
        self._times_back = times_back
        self._silent: set[int] = set()
        self._is_over = False

    def know(self, group: str, steps: int, metrics: Mapping[str, float]) -> None:
        """Shows the rules a report of an earlier attempt that is still visible. Nothing is decided about it."""
        for (its_group, name), rule in zip(self._places, self._rules, strict=True):
            if its_group == group and name in metrics:
                rule.judge(steps, metrics[name])

    def feed(self, group: str, steps: int, metrics: Mapping[str, float]) -> list[Trouble]:
        """Returns the trouble that a report tells of. After one for which the attempt ends, there is no more."""
        found: list[Trouble] = []
        for number, ((its_group, name), rule) in enumerate(zip(self._places, self._rules, strict=True)):
            if self._is_over or its_group != group or name not in metrics:
                continue
            if not (words := rule.judge(steps, metrics[name])):
                good_until = steps if rule.good_until is None else rule.good_until
                self._good_until[number] = max(self._good_until[number], good_until)
                self._silent.discard(number)
            elif number not in self._silent:  # one alert for all reports of one trouble
                self._silent.add(number)
                action = self._action(number)
                self._is_over = action != "alert"
                is_spoiled = action == "go_back" and self._good_until[number] == self._suspected
                good_until = self._good_until[number] - is_spoiled
                found.append(Trouble(number, action, steps, good_until, f"{name} {words}"))
        return found

    def _action(self, number: int) -> GuardAction:
        guard = self._guards[number]
        is_spent = self._times_back.get(number, 0) >= guard.max_times
        return "stop" if guard.action == "go_back" and is_spent else guard.action
