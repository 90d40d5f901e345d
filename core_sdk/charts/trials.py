"""The curves of trials: one chart for each metric, with a curve for each trial that has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from core_sdk.charts.chart import Chart, Curve
from core_sdk.errors import NothingToDrawError, NotRecordedError
from core_sdk.tracking import View

PICTURE_BUCKETS = 800
"""The number of points of a curve that can be told apart in a picture."""


def trial_charts(
    view: View,
    trial_ids: Sequence[int],
    *,
    group: str | None = None,
    metrics: Collection[str] = (),
    max_buckets: int = PICTURE_BUCKETS,
) -> list[Chart]:
    """Returns a chart for each metric of the trials, or only of the `group` and the `metrics` that are named.

    The steps from which a trial was resumed are marked if it is the only one. Raises `NotRecordedError`
    or `NothingToDrawError`.
    """
    series = {trial_id: [(one.group, one.name) for one in view.series(trial_id)] for trial_id in trial_ids}
    known = list(dict.fromkeys(chain.from_iterable(series.values())))
    chosen = [(of, name) for of, name in known if group in (None, of) and (not metrics or name in metrics)]
    if group is not None and all(of != group for of, _ in known):
        check_group(view, trial_ids[0], group)
        raise NothingToDrawError(f"group {group!r} of trial {trial_ids[0]} has no numbers over steps to plot")
    for name in metrics if known else ():
        if name not in (found for _, found in chosen):
            trials = ", ".join(map(str, trial_ids))
            trials = f"trials {trials} have" if len(trial_ids) > 1 else f"trial {trials} has"
            raise NotRecordedError(f"{trials} no metric {name!r} to show", "The metrics", (found for _, found in known))
    marks = view.resume_points(trial_ids[0]) if len(trial_ids) == 1 else []
    return [
        Chart(
            f"{of} {name}",
            [
                Curve(f"trial {trial_id}", view.buckets(trial_id, of, name, max_buckets))
                for trial_id in trial_ids
                if (of, name) in series[trial_id]
            ],
            marks,
        )
        for of, name in chosen
    ]


def check_group(view: View, trial_id: int, group: str) -> None:
    """Raises `NotRecordedError` unless the trial has reported something in the group. The profiler's groups count."""
    if group not in (known := view.groups(trial_id)):
        raise NotRecordedError(f"trial {trial_id} has no reports of a group {group!r} to show", "Its groups", known)
