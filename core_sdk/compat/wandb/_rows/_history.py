"""The rows of a run: which step a call of `log()` belongs to, and which group each of its values."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from core_sdk._ground.records import split_metric_name
from core_sdk.compat.wandb._rows._metrics import MetricDefinitions
from core_sdk.compat.wandb._values import is_medium, recordable
from core_sdk.core import TrainContext

logger = logging.getLogger("core_sdk.compat")

_NUMERIC_GROUPS = ("training", "validation")
_OF_JSON = (str, list, tuple, Mapping)
_TEXT = "text"
"""The group of what is no number, where only numbers are metrics."""
_OTHER = "other"
"""The group of a metric whose place another one has taken."""


class History:
    """Reports what a run logs. A step is a row, which calls may fill one after another; rows only go forward."""

    def __init__(self, train: TrainContext, first_step: int) -> None:
        self.step = first_step
        """The step of the row that is being filled."""
        self.last_step = max(0, first_step - 1)
        """The newest step with a report."""
        self.num_ignored = 0
        self.definitions = MetricDefinitions()
        self._train = train
        self._places: dict[str, tuple[str, str]] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._latest: dict[str, Any] = {}

    def log(self, data: Mapping[str, Any], step: int | None, commit: bool | None) -> dict[str, Any]:
        """Reports a call at once, and returns its values by name; none if its step lies behind the row.

        Without `step` the call fills the row and ends it, unless `commit` is False. With a step it begins the row of
        that step, and does not end it unless `commit` is True.
        """
        if not isinstance(data, Mapping):
            raise TypeError(f"wandb.log() takes a dict, not {type(data).__name__}")
        if step is not None:
            if (step := operator.index(step)) < self.step:
                self._ignore(step)
                return {}
            self.step = step
        values = dict(_flat(data))
        self._add_steps(values)
        self.report(values, self.step)
        if commit or (commit is None and step is None):
            self.step += 1
        return values

    def report(self, values: Mapping[str, Any], step: int) -> None:
        """Reports values at a step, each in its group. A value that is reported again replaces the earlier one."""
        groups: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            group, metric = self._places.get(name) or self._placed(name)
            if group in _NUMERIC_GROUPS and isinstance(value, _OF_JSON) and not is_medium(value):
                group, metric = _TEXT, name
            groups.setdefault(group, {})[metric] = value
        for group, metrics in groups.items():
            self._train.report_metrics(group, step, metrics, replace=True)
        if values:
            self.last_step = max(self.last_step, step)
            self._latest.update(values)

    def _add_steps(self, values: dict[str, Any]) -> None:
        """Adds the newest value of each metric over which one of these is drawn."""
        for name in list(values):
            axis = (definition := self.definitions.of(name)).step_metric
            if axis and definition.has_step and axis not in values and axis in self._latest:
                values[axis] = self._latest[axis]

    def _ignore(self, step: int) -> None:
        self.num_ignored += 1
        if self.num_ignored == 1:
            logger.warning(
                "log(step=%d) is not recorded, since the run is at step %d and steps only go forward. Give values that "
                "come late an axis of their own: define_metric(name, step_metric=…)",
                step,
                self.step,
            )

    def _placed(self, name: str) -> tuple[str, str]:
        """Returns the group of a metric and its name there: in `other` if another metric has that place."""
        place = split_metric_name(name)
        if not all(place):
            place = "training", name
        if (taken := self._names.get(place)) is not None:
            logger.warning("%r is kept in the group %r, since %r is %r of group %r", name, _OTHER, taken, *place[::-1])
            place = _OTHER, name
        self._names[place] = name
        self._places[name] = place
        return place


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields names and values. A nested dict counts as names with slashes, as `Logger` and `core-sdk import` say."""
    for name, value in data.items():
        if not isinstance(name, str):
            raise TypeError(f"the names that wandb.log() gets must be strings, not {name!r}")
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield from recordable(f"{prefix}{name}", value)
