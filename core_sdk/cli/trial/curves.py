"""The curves of trials: one chart for each metric, with a curve for each trial that has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path

from core_sdk.cli.render.chart import Chart, Curve
from core_sdk.cli.render.drawing import check_format, draw_charts, num_buckets
from core_sdk.cli.trial.reports import NoSuchMetricError, check_group
from core_sdk.errors import CoreSDKError
from core_sdk.tracking import View


class NothingToPlotError(CoreSDKError):
    def __init__(self, trial_id: int, group: str) -> None:
        super().__init__(f"group {group!r} of trial {trial_id} has no numbers over steps to plot.")


def draw(
    view: View, trial_ids: Sequence[int], *, group: str | None = None, metrics: Collection[str] = (), to: Path | None
) -> None:
    """Draws in the terminal or, with `to`, into a file.

    Raises `NoSuchGroupError`, `NoSuchMetricError` or `NothingToPlotError`.
    """
    check_format(to)
    draw_charts(_read_charts(view, trial_ids, group, metrics, num_buckets(to)), to)


def _read_charts(
    view: View, trial_ids: Sequence[int], group: str | None, metrics: Collection[str], max_buckets: int
) -> list[Chart]:
    series = {trial_id: [(one.group, one.name) for one in view.series(trial_id)] for trial_id in trial_ids}
    known = list(dict.fromkeys(chain.from_iterable(series.values())))
    chosen = [(of, name) for of, name in known if group in (None, of) and (not metrics or name in metrics)]
    if group is not None and all(of != group for of, _ in known):
        check_group(view, trial_ids[0], group)
        raise NothingToPlotError(trial_ids[0], group)
    for name in metrics if known else ():
        if name not in (found for _, found in chosen):
            raise NoSuchMetricError(trial_ids, name, (found for _, found in known))
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
