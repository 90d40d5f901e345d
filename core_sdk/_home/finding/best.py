"""The best trial of an experiment, and the best of its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from core_sdk._ground.records import Metric, SearcherMetric, chosen_metric, format_number
from core_sdk._home.finding.facts import metric_named
from core_sdk._home.folders import Home
from core_sdk._home.rows import CheckpointRow, TrialRow
from core_sdk._home.view import View


class BestCheckpoint(msgspec.Struct, frozen=True):
    storage_id: str
    trial_id: int
    steps_completed: int
    value: Metric


class Best(msgspec.Struct, frozen=True):
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
    """Returns the trial with the best value of the metric that decides; None if there is no such metric or value."""
    metric = deciding_metric(home, experiment_id, name, smaller_is_better)
    found = None if metric is None else metric_named(metric.name, view.metric_names(experiment_id), metric.group)
    if metric is None or found is None:
        return None
    reached = view.best_values(experiment_id, *found, smaller_is_better=metric.smaller_is_better)
    trial_id = next(iter(metric.best_first(reached, reached.get)), None)
    if trial_id is None:
        return None
    group, metric_name = found
    value = reached[trial_id]
    checkpoint = best_checkpoint(view.checkpoints(experiment_id=experiment_id), metric, (trial_id, value))
    if checkpoint is not None and (checkpoint.trial_id, checkpoint.value) == (trial_id, value):
        steps: int | None = checkpoint.steps_completed
    else:
        reports = view.reports(trial_id, group)
        steps = next((one.steps_completed for one in reports if one.metrics.get(metric_name) == value), None)
    told = metric_name if group == "validation" else f"{group}.{metric_name}"
    return Best(trial_id, told, value, steps, checkpoint)


def deciding_metric(
    home: Home, experiment_id: int, name: str | None, smaller_is_better: bool | None
) -> SearcherMetric | None:
    """Returns the metric that says what is best in an experiment; the options are as `chosen_metric` has them."""
    return chosen_metric(home.experiment(experiment_id).read().searcher_metric, name, smaller_is_better)


def deciding_metric_of_trial(
    home: Home, trial: TrialRow, name: str | None, smaller_is_better: bool | None
) -> SearcherMetric | None:
    """Returns the metric that says what is best in a trial: its own, unless its experiment's must do."""
    own = (
        SearcherMetric.named(trial.best_by)
        if trial.best_by
        else home.experiment(trial.experiment_id).read().searcher_metric
    )
    return chosen_metric(own, name, smaller_is_better)


def best_checkpoint(
    rows: Sequence[CheckpointRow], metric: SearcherMetric, best: tuple[int, Metric] | None = None
) -> BestCheckpoint | None:
    """Returns the intact checkpoint of the `best` trial and value, or else the one that was validated best.

    `rows` are in the order of `View.checkpoints`.
    """
    validated = [
        BestCheckpoint(row.storage_id, row.trial_id, row.steps_completed, value)
        for row in checkpoints_best_first(rows, metric)
        if row.state == "COMPLETED" and (value := metric.of(row.metrics)) is not None
    ]
    own = (one for one in validated if (one.trial_id, one.value) == best)
    return next(chain(own, validated), None)


def checkpoints_best_first(rows: Sequence[CheckpointRow], metric: SearcherMetric) -> list[CheckpointRow]:
    """Returns the checkpoints that were validated with a finite number, the best first.

    `rows` are in the order of `View.checkpoints`.
    """
    return metric.best_first(list(reversed(rows)), lambda row: metric.of(row.metrics))
