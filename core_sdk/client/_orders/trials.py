"""Sorts the trials of an experiment for the client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from core_sdk._ground.records import Metric
from core_sdk._home import Home, View, open_view
from core_sdk._home.rows import TrialRow
from core_sdk.client._orders.checkpoints import known_metric, searcher_metric
from core_sdk.client._orders.order import OrderBy, TrialSortBy, in_order


def list_trials(
    home: Home, experiment_id: int, sort_by: TrialSortBy, order_by: OrderBy, limit: int | None
) -> list[TrialRow]:
    """Returns the first `limit` trials in order. The contract is the same as of `Experiment.list_trials`."""
    with open_view(home) as view:
        key = _KEYS.get(sort_by) or _metric_key(home, view, experiment_id, sort_by)
        return in_order(view.trials(experiment_id), key, order_by, limit)


_KEYS: Mapping[TrialSortBy, Callable[[TrialRow], Any]] = {
    TrialSortBy.ID: lambda row: row.trial_id,
    TrialSortBy.START_TIME: lambda row: row.created,
    TrialSortBy.END_TIME: lambda row: row.ended,
    TrialSortBy.DURATION: lambda row: (row.ended or time.time()) - row.created,
    TrialSortBy.STATE: lambda row: row.state,
    TrialSortBy.BATCHES_PROCESSED: lambda row: row.steps_completed,
    TrialSortBy.RESTARTS: lambda row: row.num_attempts,
}


def _metric_key(
    home: Home, view: View, experiment_id: int, sort_by: TrialSortBy
) -> Callable[[TrialRow], Metric | None]:
    metric = known_metric(searcher_metric(home, experiment_id), experiment_id)
    if sort_by is TrialSortBy.BEST_VALIDATION_METRIC:
        best = view.best_values(experiment_id, "validation", metric.name, smaller_is_better=metric.smaller_is_better)
        return lambda row: best.get(row.trial_id)
    figures = view.figures()

    def last(row: TrialRow) -> Metric | None:
        found = figures.get(row.trial_id, {}).get("validation", {}).get(metric.name)
        return None if found is None else found.last

    return last
