"""Sorts checkpoints by their recorded properties or by a validation metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, View, open_view
from core_sdk._home.rows import CheckpointRow
from core_sdk.client._orders.order import CheckpointSortBy, CheckpointState, OrderBy, in_order


@dataclass(frozen=True)
class Scope:
    """The trial whose checkpoints are compared, or the experiment with all of its trials."""

    experiment_id: int
    trial_id: int | None = None

    def __str__(self) -> str:
        return f"experiment {self.experiment_id}" if self.trial_id is None else f"trial {self.trial_id}"


def list_checkpoints(
    home: Home,
    scope: Scope,
    sort_by: CheckpointSortBy | str | None,
    order_by: OrderBy | None,
    max_results: int | None = None,
) -> list[CheckpointRow]:
    """Returns the checkpoints that exist, in order. The contract is the same as of `Trial.list_checkpoints`."""
    if (sort_by is None) != (order_by is None):
        given, missing = ("sort_by", "order_by") if order_by is None else ("order_by", "sort_by")
        raise ValueError(f"{given} was given without {missing}: give both, or neither")
    metric = searcher_metric(home, scope.experiment_id)
    if sort_by is CheckpointSortBy.SEARCHER_METRIC:
        sort_by = known_metric(metric, scope.experiment_id).name
    with open_view(home) as view:
        rows = [
            row
            for row in view.checkpoints(trial_id=scope.trial_id, experiment_id=scope.experiment_id)
            if row.state != CheckpointState.DELETED.name
        ]
        if sort_by is not None:
            key = _sort_key(view, rows, sort_by)
        elif metric is not None:
            key, order_by = _metric_key(metric.name), best_first(metric.smaller_is_better)
        else:
            return in_order(rows, _as_listed, OrderBy.ASC, max_results)
    return in_order(rows, key, order_by or OrderBy.ASC, max_results)


def top_checkpoints(
    home: Home, scope: Scope, sort_by: str | None, smaller_is_better: bool | None
) -> list[CheckpointRow]:
    """Returns the checkpoints that have the validation metric, the best first.

    The contract is the same as of `Trial.top_checkpoint`.
    """
    metric = searcher_metric(home, scope.experiment_id)
    if sort_by is None:
        sort_by = known_metric(metric, scope.experiment_id).name
        smaller_is_better = None
    if smaller_is_better is None:
        if metric is None or metric.name != sort_by:
            raise ValueError(f"nothing says whether a smaller {sort_by!r} is better: give smaller_is_better")
        smaller_is_better = metric.smaller_is_better
    found = list_checkpoints(home, scope, sort_by, best_first(smaller_is_better))
    if not found:
        raise ValueError(f"{scope} has no checkpoint: there is no best")
    comparable = [row for row in found if (value := row.metrics.get(sort_by)) is not None and value == value]
    if not comparable:
        raise ValueError(f"no checkpoint of {scope} was validated with a number for {sort_by!r}: there is no best")
    return comparable


def searcher_metric(home: Home, experiment_id: int) -> SearcherMetric | None:
    """Returns the metric by which checkpoints of the experiment are ranked, or None if none is recorded."""
    return home.experiment(experiment_id).read().searcher_metric


def known_metric(metric: SearcherMetric | None, experiment_id: int) -> SearcherMetric:
    if metric is None:
        raise ValueError(f"experiment {experiment_id} has no searcher metric: name the metric to sort by")
    return metric


def best_first(smaller_is_better: bool) -> OrderBy:
    return OrderBy.ASC if smaller_is_better else OrderBy.DESC


def _as_listed(row: CheckpointRow) -> int:
    return 0  # the index returns the newest first


def _sort_key(
    view: View, rows: Sequence[CheckpointRow], sort_by: CheckpointSortBy | str
) -> Callable[[CheckpointRow], Any]:
    if not isinstance(sort_by, str):
        return _SORT_KEYS[sort_by]
    if rows and sort_by not in (names := _metric_names(view, {row.trial_id for row in rows})):
        raise ValueError(f"no validation metric is called {sort_by!r}; there are {', '.join(sorted(names)) or 'none'}")
    return _metric_key(sort_by)


_SORT_KEYS: Mapping[CheckpointSortBy, Callable[[CheckpointRow], Any]] = {
    CheckpointSortBy.UUID: lambda row: row.storage_id,
    CheckpointSortBy.TRIAL_ID: lambda row: row.trial_id,
    CheckpointSortBy.BATCH_NUMBER: lambda row: row.steps_completed,
    CheckpointSortBy.END_TIME: lambda row: row.time,
    CheckpointSortBy.STATE: lambda row: row.state,
}


def _metric_names(view: View, trial_ids: Iterable[int]) -> set[str]:
    return {name for trial_id in trial_ids for name in view.summary(trial_id).get("validation", {})}


def _metric_key(name: str) -> Callable[[CheckpointRow], Any]:
    return lambda row: row.metrics.get(name)
