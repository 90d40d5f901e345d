"""Reports the values that frameworks log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from core_sdk._ground.records import Metric, number_of
from core_sdk.core import Context

logger = logging.getLogger("core_sdk.integrations")


class Reporter:
    """Reports the numbers that a framework logs, and how far it is. Only the chief does.

    Arrays and tensors of one element are numbers. A value that is none is left out, which a warning says once.
    """

    def __init__(self, core_context: Context) -> None:
        self._is_chief = core_context.distributed.is_chief
        self._train = core_context.train
        self._reported: dict[str, tuple[int, dict[str, Metric]]] = {}
        self._left_out: set[str] = set()

    def report(self, group: str, steps_completed: int, values: Mapping[str, Any]) -> None:
        """Reports values. Frameworks log some, such as the epoch, several times at one step: the first one is kept."""
        if self._is_chief:
            self._report(group, steps_completed, self._numbers(values))

    def report_evaluation(self, group: str, steps_completed: int, values: Mapping[str, Any]) -> None:
        """Reports an evaluation: a second one of the same step, as of the best model at the end, as `<group>_2`."""
        if not self._is_chief:
            return
        metrics = self._numbers(values)
        name, number = group, 1
        while any(known != metrics.get(metric, known) for metric, known in self._known(name, steps_completed).items()):
            number += 1
            name = f"{group}_{number}"
        self._report(name, steps_completed, metrics)

    def report_progress(self, steps_completed: int, num_steps: float) -> None:
        """Reports the progress. `num_steps` is infinite, or not positive, if the framework does not know it."""
        if self._is_chief and 0 < num_steps < float("inf"):
            self._train.report_progress(min(1.0, steps_completed / num_steps))

    def _report(self, group: str, steps_completed: int, metrics: Mapping[str, Metric]) -> None:
        known = self._known(group, steps_completed)
        new = {name: value for name, value in metrics.items() if name not in known}
        if new:
            self._train.report_metrics(group, steps_completed, new)
        self._reported[group] = steps_completed, known | new

    def _known(self, group: str, steps_completed: int) -> dict[str, Metric]:
        """Returns the metrics that the group has reported at this step."""
        step, metrics = self._reported.get(group, (steps_completed, {}))
        return metrics if step == steps_completed else {}

    def _numbers(self, values: Mapping[str, Any]) -> dict[str, Metric]:
        numbers = {}
        for name, value in values.items():
            if (number := number_of(value)) is not None:
                numbers[name] = number
            elif name not in self._left_out:
                self._left_out.add(name)
                logger.warning("%r is not reported: it is a %s, and a metric is a number", name, type(value).__name__)
        return numbers
