"""A search as a chart: the searcher's metric of each trial, the rungs, and where trials were stopped."""

from __future__ import annotations

import math

from core_sdk._analysis.charts.chart import Chart, ChartCurve
from core_sdk._analysis.charts.curves import read_curves
from core_sdk._analysis.charts.horizontal_axis import Series
from core_sdk._execution.experiments.picture import SearchPicture
from core_sdk._ground.records import Metric
from core_sdk._home import View
from core_sdk._home.rows import SeriesBucket


def search_chart(picture: SearchPicture, view: View, num_buckets: int) -> Chart:
    """Returns the chart of a search, with a curve for each trial.

    A curve shows the values that the searcher has read, by length. If the searcher reads no lengths, it shows the
    values that the trial has reported, by step.
    """
    curves = []
    # The best trial comes first and stopped trials come last, since earlier curves are drawn over later ones.
    for trial in sorted(
        picture.trials, key=lambda trial: (trial.trial_id != picture.best_trial, trial.fate == "stopped")
    ):
        buckets = (
            [_bucket(length, metric) for length, metric in trial.points]
            if picture.reads_lengths
            else [
                bucket
                for curve in read_curves(
                    view, [Series(trial.trial_id, "validation", picture.metric)], num_buckets=num_buckets
                )
                for bucket in curve.buckets
            ]
        )
        if buckets:
            is_best = trial.trial_id == picture.best_trial
            label = f"trial {trial.trial_id}, the best" if is_best else trial.fate
            curves.append(ChartCurve(label, buckets, is_cut=not is_best and trial.fate == "stopped"))
    title = f"{picture.name}: {picture.metric} by {picture.unit if picture.reads_lengths else 'steps'}"
    reached = max((length for trial in picture.trials for length, _ in trial.points), default=0.0)
    return Chart(title, curves, [rung for rung in picture.rungs if rung <= reached], "rung")


def _bucket(length: float, metric: Metric) -> SeriesBucket:
    value = None if math.isnan(metric) else metric
    return SeriesBucket(length, length, 1, value, value, None if value is None else float(value))
