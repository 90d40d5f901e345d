"""Reports the values that frameworks log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_sdk.core import Context


class Reporter:
    """Reports the numbers that a framework logs, and how far it is. Only the chief does.

    Frameworks log some values, such as the epoch, several times at one step. The first one is kept.
    """

    def __init__(self, core_context: Context) -> None:
        self._is_chief = core_context.distributed.is_chief
        self._train = core_context.train
        self._reported: dict[str, tuple[int, frozenset[str]]] = {}

    def report(self, group: str, steps_completed: int, values: Mapping[str, Any]) -> None:
        if not self._is_chief:
            return
        step, names = self._reported.get(group, (steps_completed, frozenset()))
        known = names if step == steps_completed else frozenset()
        metrics = {name: value for name, value in values.items() if name not in known and _is_number(value)}
        if metrics:
            self._train.report_metrics(group, steps_completed, metrics)
        self._reported[group] = steps_completed, known.union(metrics)

    def report_progress(self, steps_completed: int, num_steps: float) -> None:
        """Reports the progress. `num_steps` is infinite, or not positive, if the framework does not know it."""
        if self._is_chief and 0 < num_steps < float("inf"):
            self._train.report_progress(min(1.0, steps_completed / num_steps))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
