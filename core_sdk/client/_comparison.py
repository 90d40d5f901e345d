"""Groups of trials, and what is typical of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core_sdk._ground.records import Metric
from core_sdk._home import Home, open_view
from core_sdk._home.finding.facts import read_facts
from core_sdk._home.finding.groups import Aggregate, GroupBest, TrialGroup, best_of

if TYPE_CHECKING:
    from core_sdk._analysis.charts.grouped_curves import Band, Centre
    from core_sdk._analysis.charts.picture import Picture


@dataclass(frozen=True)
class ComparedGroup:
    """Trials that have the same values."""

    values: Mapping[str, Any]
    """The value of each name; None where the trials have none."""
    trial_ids: Sequence[int]
    best_trial_id: int | None
    """The best trial; None if no trial of the group has a finite value of the metric that decides."""
    best_value: Metric | None
    metrics: Mapping[str, Aggregate]
    """The aggregates of the trials' last values, for each metric `group.name`."""


class Comparison:
    """Groups of trials as they were when they were compared."""

    def __init__(self, home: Home, trial_ids: Iterable[int], group_by: Sequence[str], best: str | None) -> None:
        from core_sdk._analysis.charts.groups import read_groups  # not needed by those who compare nothing

        self._home = home
        self.group_by = tuple(group_by)
        with open_view(home) as view:
            found = read_facts(view, [view.trial(trial_id) for trial_id in dict.fromkeys(trial_ids)])
        self._groups, decides = read_groups(home, found, self.group_by, best)
        self.best_by = decides.best_name if decides else None
        """The rule for the best trial of a group, min.METRIC or max.METRIC; None if there is no metric."""
        self.groups = [_compared(group, self.group_by, best_of(group.members, decides)) for group in self._groups]

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.groups)} groups by {', '.join(self.group_by) or 'nothing'}>"

    def frame(self) -> dict[str, list[Any]]:
        """Returns the groups as columns: `pandas.DataFrame(comparison.frame())`.

        There is a column for each name of `group_by`, then num_trials, best_trial_id and best_value, and for each
        metric its mean, std and count, as "validation.loss.mean". The std of a single value is None.
        """
        columns: dict[str, list[Any]] = {name: [one.values[name] for one in self.groups] for name in self.group_by}
        columns["num_trials"] = [len(one.trial_ids) for one in self.groups]
        columns["best_trial_id"] = [one.best_trial_id for one in self.groups]
        columns["best_value"] = [one.best_value for one in self.groups]
        for metric in dict.fromkeys(metric for one in self.groups for metric in one.metrics):
            for figure in ("mean", "std", "count"):
                columns[f"{metric}.{figure}"] = [getattr(one.metrics.get(metric), figure, None) for one in self.groups]
        return columns

    def curves_frame(
        self, metric: str, *, x: str = "steps", centre: Centre = "mean", band: Band = "std", max_points: int = 1000
    ) -> dict[str, list[Any]]:
        """Returns the curves of a metric, such as "validation.loss", as columns with a row for each point of a group.

        `x` is "steps", "time" (since the start of each trial), "epochs" or another metric. The columns are the
        names in `group_by`, then the end of the point (steps_completed, time_s, epochs_completed, or the name of the
        metric `x`), centre, low, high, num_trials (in that point), and join: "common" if the trials of the group are
        joined at the x that they have in common, "bins" if they have few in common. Superseded reports, NaN and
        infinite values are left out. Raises `NotRecordedError`.
        """
        from core_sdk._analysis.charts.groups import read_group_curves

        place = _PLACES.get(x, x)
        names = *self.group_by, place, "centre", "low", "high", "num_trials", "join"
        columns: dict[str, list[Any]] = {name: [] for name in names}
        with open_view(self._home) as view:
            curves = read_group_curves(view, self._groups, metric, x=x, centre=centre, band=band, max_points=max_points)
        for group, curve in zip(self.groups, curves, strict=True):
            for name in self.group_by:
                columns[name] += [group.values[name]] * len(curve.x)
            columns[place] += curve.x
            columns["centre"] += curve.centre
            columns["low"] += curve.low
            columns["high"] += curve.high
            columns["num_trials"] += curve.num_trials
            columns["join"] += [curve.join] * len(curve.x)
        return columns

    def plot(
        self,
        metrics: Collection[str] = (),
        *,
        group: str | None = None,
        x: str = "steps",
        centre: Centre = "mean",
        band: Band = "std",
    ) -> Picture:
        """Draws a chart for each metric, with a curve and a band for each group, which a notebook shows.

        A metric may be named with its group or without it; "/loss$/" names the metrics in which this regular expression
        has a match. `x` is as in `curves_frame`. `centre` is "mean" or "median". `band` is "std" (the standard
        deviation), "sem" (the standard error), "range" (minimum to maximum) or "none". Raises `NotRecordedError` or
        `NothingToDrawError`.
        """
        from core_sdk._analysis.charts.groups import group_charts
        from core_sdk._analysis.charts.picture import Picture

        with open_view(self._home) as view:
            charts = group_charts(
                view, self._groups, self.group_by, group=group, metrics=metrics, x=x, centre=centre, band=band
            )
        return Picture(charts)


_PLACES = {"steps": "steps_completed", "time": "time_s", "epochs": "epochs_completed"}
"""The names of the columns of x."""


def _compared(group: TrialGroup, names: Sequence[str], best: GroupBest | None) -> ComparedGroup:
    return ComparedGroup(
        values=dict(zip(names, group.values, strict=True)),
        trial_ids=group.trial_ids,
        best_trial_id=best.trial_id if best else None,
        best_value=best.value if best else None,
        metrics=group.aggregates,
    )
