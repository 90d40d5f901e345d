"""A search as a chart: the searcher's metric of each trial, the rungs, and where trials were stopped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from uuid import UUID

from core_sdk.cli.experiment.following import Follower
from core_sdk.cli.render.chart import Chart, Curve
from core_sdk.config.searchers import SearcherConfig
from core_sdk.experiments._trial import Trial
from core_sdk.records import Event, Metric, ValidationRead, from_json
from core_sdk.tracking import View
from core_sdk.tracking.rows import Bucket

_BEST, _TO_THE_END, _GOES_ON, _STOPPED = "trial {}, the best", "trained to the end", "goes on", "stopped"

Points = dict[float, Metric]
"""The searcher's metric, by length."""


def read_chart(follower: Follower, view: View, num_buckets: int) -> Chart:
    """What the searcher has read of each trial; where it reads no lengths, what the trial has reported at each step."""
    read = _points(follower.read())
    searcher, rungs = follower.searcher, follower.experiment.rung_lengths
    trials = [trial for trial in follower.experiment.trials.values() if trial.trial_id is not None]
    best_id = follower.best_trial[0] if follower.best_trial else None
    curves = []
    # The best one first, and those that were stopped last, since others are drawn over them.
    for trial in sorted(trials, key=lambda trial: (trial.trial_id != best_id, _fate(trial, rungs) == _STOPPED)):
        fate = _fate(trial, rungs)
        buckets = (
            [_bucket(length, metric) for length, metric in sorted(read.get(trial.request_id, {}).items())]
            if read
            else view.buckets(trial.trial_id or 0, "validation", searcher.metric, num_buckets)
        )
        if buckets:
            label = _BEST.format(best_id) if trial.trial_id == best_id else fate
            curves.append(Curve(label, buckets, is_cut=trial.trial_id != best_id and fate == _STOPPED))
    title = f"{follower.name}: {searcher.metric} by {_unit(searcher) if read else 'steps'}"
    reached = max((length for points in read.values() for length in points), default=0.0)
    return Chart(title, curves, [rung for rung in rungs if rung <= reached], "rung")


def _points(events: Iterable[Event]) -> Mapping[UUID, Points]:
    points: dict[UUID, Points] = {}
    for event in events:
        if isinstance(event, ValidationRead) and event.length is not None:
            metric = from_json(event.metric)
            if isinstance(metric, int | float):  # a search method of one's own may be told anything
                points.setdefault(event.request_id, {})[event.length] = metric
    return points


def _bucket(length: float, metric: Metric) -> Bucket:
    value = None if math.isnan(metric) else metric
    return Bucket(length, length, 1, value, value, None if value is None else float(value))


def _fate(trial: Trial, rungs: list[int]) -> str:
    if not trial.is_over:
        return _GOES_ON
    if trial.state != "COMPLETED":
        return str(trial.state).lower()
    return _STOPPED if rungs and trial.last_length < rungs[-1] else _TO_THE_END


def _unit(searcher: SearcherConfig) -> str:
    """What lengths are counted in."""
    time_metric, max_length = getattr(searcher, "time_metric", None), getattr(searcher, "max_length", None)
    return time_metric or (max_length and max_length.unit) or "length"
