"""The lines of a tree of trials, for terminals and for models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial

from core_sdk._ground.records import SearcherMetric, chosen_metric, format_number
from core_sdk._home import Home
from core_sdk._home.finding.groups import grouped_metric
from core_sdk._home.finding.tree import Branch


def tree_lines(
    home: Home, branches: Sequence[Branch], metric: str | None = None, smaller_is_better: bool | None = None
) -> Iterator[str]:
    """Yields a line for each trial: its number, its verdict or state, its best value, and its hypothesis or name.

    A best value is told as `min.loss` or `max.accuracy`, which says how the metric is read.
    """
    recorded = cache(lambda experiment_id: home.experiment(experiment_id).read().searcher_metric)
    grouped = cache(partial(grouped_metric, [one.trial for one in branches]))
    for one in branches:
        row = one.trial.row
        own = SearcherMetric.named(row.best_by) if row.best_by else recorded(row.experiment_id)
        deciding = chosen_metric(own, metric, smaller_is_better)
        name = None if deciding is None else grouped(deciding).best_name
        value = None if name is None else one.trial.metric(name)
        best = "" if value is None or deciding is None else f"{deciding.best_name} {format_number(value)}"
        if name is not None and deciding is not None and one.seeds and (found := one.best(name)) is not None:
            best = f"{deciding.best_name} {format_number(found.mean)} (mean of {found.count})"
        told = [str(row.trial_id), row.verdict or row.state, best, row.hypothesis or row.name]
        yield "  " * one.depth + "  ".join(word for word in told if word)
