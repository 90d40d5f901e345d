"""The best trial of an experiment, and the best of its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from core_sdk._ground.records import Metric, SearcherMetric, format_number
from core_sdk._home.folders import Home
from core_sdk._home.rows import CheckpointRow
from core_sdk._home.view import View


@dataclass(frozen=True)
class BestCheckpoint:
    storage_id: str
    trial_id: int
    steps_completed: int
    value: Metric


@dataclass(frozen=True)
class Best:
    trial_id: int
    metric: str
    value: Metric
    steps_completed: int | None
    checkpoint: BestCheckpoint | None
    """The checkpoint of the best value, or else the best checkpoint; None if no checkpoint was validated."""

    def __str__(self) -> str:
        steps = "" if self.steps_completed is None else f" at step {self.steps_completed}"
        own = f", checkpoint {self.checkpoint.storage_id}" if self.checkpoint and self._is_own(self.checkpoint) else ""
        return f"trial {self.trial_id}, with {self.metric} {format_number(self.value)}{steps}{own}"

    @property
    def checkpoint_text(self) -> str:
        """Names the checkpoint for people, or says that there is none."""
        one = self.checkpoint
        if one is None:
            return "none with this metric"
        if self._is_own(one):
            return f"{one.storage_id} (step {one.steps_completed})"
        value = f"{self.metric} {format_number(one.value)}"
        where = f"trial {one.trial_id}, step {one.steps_completed}, {value}"
        return f"none of this value; the best that has one: {one.storage_id} ({where})"

    def _is_own(self, one: BestCheckpoint) -> bool:
        return (one.trial_id, one.value) == (self.trial_id, self.value)


def best_trial(
    home: Home, view: View, experiment_id: int, name: str | None = None, smaller_is_better: bool | None = None
) -> Best | None:
    """Returns the trial with the best value of any validation; None if no metric is known, or none was reported.

    The metric is the searcher's, unless another one is named.
    """
    metric = deciding_metric(home, experiment_id, name, smaller_is_better)
    if metric is None:
        return None
    reached = view.best_validations(experiment_id, metric.name, smaller_is_better=metric.smaller_is_better)
    choose = min if metric.smaller_is_better else max
    trial_id = choose(reached, key=reached.__getitem__, default=None)
    if trial_id is None:
        return None
    value = reached[trial_id]
    rows = view.checkpoints(experiment_id=experiment_id)
    checkpoint = best_checkpoint(rows, metric, (trial_id, value))
    if checkpoint is not None and (checkpoint.trial_id, checkpoint.value) == (trial_id, value):
        steps: int | None = checkpoint.steps_completed
    else:
        reports = view.reports(trial_id, "validation")
        steps = next((one.steps_completed for one in reports if one.metrics.get(metric.name) == value), None)
    return Best(trial_id, metric.name, value, steps, checkpoint)


def deciding_metric(
    home: Home, experiment_id: int, name: str | None, smaller_is_better: bool | None
) -> SearcherMetric | None:
    """Returns the metric that says what is best: the searcher's, or the one that is named, as the options read it.

    Without an option, smaller values of a metric that is not the searcher's are better. None if no metric is known.
    """
    recorded = home.experiment(experiment_id).read().searcher_metric
    metric = recorded if name is None or (recorded and recorded.name == name) else SearcherMetric(name=name)
    if metric is None or smaller_is_better is None:
        return metric
    return SearcherMetric(name=metric.name, smaller_is_better=smaller_is_better)


def best_checkpoint(
    rows: Iterable[CheckpointRow], metric: SearcherMetric, best: tuple[int, Metric] | None = None
) -> BestCheckpoint | None:
    """Returns the intact checkpoint of the `best` trial and value, or else the one that was validated best."""
    validated = [
        BestCheckpoint(row.storage_id, row.trial_id, row.steps_completed, row.metrics[metric.name])
        for row in rows
        if row.state == "COMPLETED" and not math.isnan(row.metrics.get(metric.name, math.nan))
    ]
    own = next((one for one in validated if (one.trial_id, one.value) == best), None)
    choose = min if metric.smaller_is_better else max
    return own or choose(validated, key=lambda one: one.value, default=None)
