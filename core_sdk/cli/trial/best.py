"""The best trial of an experiment."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from core_sdk.records import Metric, SearcherMetric, format_number
from core_sdk.tracking import View


@dataclass(frozen=True)
class Best:
    trial_id: int
    metric: str
    value: Metric

    def __str__(self) -> str:
        return f"trial {self.trial_id}, with {self.metric} {format_number(self.value)}"


def best_trial(
    view: View, experiment_id: int, recorded: SearcherMetric | None, name: str | None, smaller_is_better: bool | None
) -> Best | None:
    """The trial with the best value that any of its validations reported; None if nobody says by which metric.

    Raises `typer.BadParameter` for a metric that no validation has.
    """
    metric = recorded if name is None or (recorded and recorded.name == name) else SearcherMetric(name=name)
    if metric is None:
        return None
    is_smaller = metric.smaller_is_better if smaller_is_better is None else smaller_is_better
    if name is not None and name not in (known := view.validation_metric_names(experiment_id)):
        names = ", ".join(sorted(known)) or "none yet"
        raise typer.BadParameter(f"no validation has the metric {name!r}. Those reported are: {names}")
    reached = view.best_validations(experiment_id, metric.name, smaller_is_better=is_smaller)
    choose = min if is_smaller else max
    best = choose(reached, key=reached.__getitem__, default=None)
    return None if best is None else Best(best, metric.name, reached[best])
