"""Sorts checkpoints by their recorded properties or by a validation metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_sdk._ground.records import SearcherMetric, chosen_metric
from core_sdk._home import Home, View, open_view
from core_sdk._home.finding.best import checkpoints_best_first
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
    metric = _recorded_metric(home, scope)
    if sort_by is CheckpointSortBy.SEARCHER_METRIC:
        sort_by = known_metric(metric, scope.experiment_id).name
    with open_view(home) as view:
        rows = _existing(view, scope)
        if sort_by is not None:
            key = _sort_key(view, rows, sort_by)
            return in_order(rows, key, order_by or OrderBy.ASC, max_results)
    if metric is not None:
        best = {row.storage_id: row for row in checkpoints_best_first(rows, metric)}
        rows = [*best.values(), *(row for row in rows if row.storage_id not in best)]
    return in_order(rows, _as_listed, OrderBy.ASC, max_results)


def top_checkpoints(
    home: Home, scope: Scope, sort_by: str | None, smaller_is_better: bool | None
) -> list[CheckpointRow]:
    """Returns the checkpoints that have the validation metric, the best first.

    The contract is the same as of `Trial.top_checkpoint`.
    """
    recorded = _recorded_metric(home, scope)
    chosen = chosen_metric(recorded, sort_by, None if sort_by is None else smaller_is_better)
    metric = known_metric(chosen, scope.experiment_id)
    if smaller_is_better is None and metric is not recorded:
        raise ValueError(f"nothing says whether a smaller {metric.name!r} is better: give smaller_is_better")
    with open_view(home) as view:
        rows = _existing(view, scope)
        _check_known(view, rows, metric.name)
    if not rows:
        raise ValueError(f"{scope} has no checkpoint: there is no best")
    found = checkpoints_best_first(rows, metric)
    if not found:
        raise ValueError(f"no checkpoint of {scope} was validated with a number for {metric.name!r}: there is no best")
    return found


def _existing(view: View, scope: Scope) -> list[CheckpointRow]:
    rows = view.checkpoints(trial_id=scope.trial_id, experiment_id=scope.experiment_id)
    return [row for row in rows if row.state != CheckpointState.DELETED.name]


def _recorded_metric(home: Home, scope: Scope) -> SearcherMetric | None:
    own = "" if scope.trial_id is None else home.trial(scope.trial_id).read_record().best_by
    return SearcherMetric.named(own) if own else searcher_metric(home, scope.experiment_id)


def searcher_metric(home: Home, experiment_id: int) -> SearcherMetric | None:
    """Returns the metric by which checkpoints of the experiment are ranked, or None if none is recorded."""
    return home.experiment(experiment_id).read().searcher_metric


def known_metric(metric: SearcherMetric | None, experiment_id: int) -> SearcherMetric:
    if metric is None:
        raise ValueError(f"experiment {experiment_id} has no searcher metric: name the metric to sort by")
    return metric


def _as_listed(row: CheckpointRow) -> int:
    return 0  # the index returns the newest first


def _sort_key(
    view: View, rows: Sequence[CheckpointRow], sort_by: CheckpointSortBy | str
) -> Callable[[CheckpointRow], Any]:
    if not isinstance(sort_by, str):
        return _SORT_KEYS[sort_by]
    _check_known(view, rows, sort_by)
    return lambda row: SearcherMetric(name=sort_by).of(row.metrics)


_SORT_KEYS: Mapping[CheckpointSortBy, Callable[[CheckpointRow], Any]] = {
    CheckpointSortBy.UUID: lambda row: row.storage_id,
    CheckpointSortBy.TRIAL_ID: lambda row: row.trial_id,
    CheckpointSortBy.BATCH_NUMBER: lambda row: row.steps_completed,
    CheckpointSortBy.END_TIME: lambda row: row.time,
    CheckpointSortBy.STATE: lambda row: row.state,
}


def _check_known(view: View, rows: Sequence[CheckpointRow], metric: str) -> None:
    figures = view.figures({row.trial_id for row in rows})
    names = {name for trial_id in figures for name in figures[trial_id].get("validation", {})}
    if rows and names.isdisjoint({metric, metric.removeprefix("validation.")}):
        raise ValueError(f"no validation metric is called {metric!r}; there are {', '.join(sorted(names)) or 'none'}")
