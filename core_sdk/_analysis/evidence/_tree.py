"""The lines of a tree of trials, for terminals and for models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core_sdk._ground.records import format_number
from core_sdk._home import Home
from core_sdk._home.finding.best import deciding_metric
from core_sdk._home.finding.tree import Branch


def tree_lines(home: Home, branches: Sequence[Branch], metric: str | None = None) -> Iterator[str]:
    """Yields a line for each trial: its number, its verdict or state, its best value, and its hypothesis or name."""
    for one in branches:
        row = one.trial.row
        deciding = deciding_metric(home, row.experiment_id, metric, None)
        name = "" if deciding is None else f"{'min' if deciding.smaller_is_better else 'max'}.{deciding.name}"
        value = None if deciding is None else one.trial.metric(name)
        best = "" if value is None or deciding is None else f"{deciding.name} {format_number(value)}"
        told = [str(row.trial_id), row.verdict or row.state, best, row.hypothesis or row.name]
        yield "  " * one.depth + "  ".join(word for word in told if word)
