"""Reads the evidence of a trial, and writes it as text of at most 4 KB.

Each part has a share of the bytes; what a part leaves out is counted. So a long traceback cannot displace the curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_sdk._analysis.charts.curves import read_curves
from core_sdk._analysis.charts.horizontal_axis import Series
from core_sdk._analysis.evidence._bounds import bounded
from core_sdk._analysis.evidence._code import code_changes
from core_sdk._ground.records import SearcherMetric, format_number
from core_sdk._home import Home, View
from core_sdk._home.finding.facts import flat_hparams
from core_sdk._home.logs.stream import LogReader
from core_sdk._home.rows import SeriesRow, TrialRow
from core_sdk.errors import TrialNotFoundError

_NUM_BUCKETS = 28
_NUM_LOG_LINES = 20
_MOST_LOG_BYTES = 64 << 10
_MOST_LINE_CHARS = 160
_MOST_FILES = 4
_ABSENT = object()


@dataclass(frozen=True)
class DecidingCurve:
    """The values of the metric that decides: its points are the means of equally wide stretches of steps."""

    metric: str
    smaller_is_better: bool
    points: Sequence[tuple[float, float]]
    """Steps and values: at most 30, of which two are the true extremes."""
    best: tuple[float, float]
    last: tuple[float, float]
    parent_best: float | None


@dataclass(frozen=True)
class Evidence:
    """The facts about a trial that help to decide about it and about the next one."""

    trial: TrialRow
    changed_hparams: dict[str, tuple[Any, Any]]
    """The values of the parent and of the trial, of each hyperparameter in which they differ. None is one that is not
    there."""
    changed_lines: Mapping[str, list[str]] | None
    """The lines of the sources that differ from the parent's, by file; None if they are not known of both."""
    code_notes: list[str]
    """What one must know to trust `changed_lines`, such as files that were edited while the trial ran."""
    curve: DecidingCurve | None
    seconds: dict[str, float]
    """The seconds from the start to the first report, from there to the last one, and from there to the end."""
    log: list[str]
    """The last lines of its output, if it has not ended well."""

    def text(self) -> str:
        """Returns the evidence as text for people and models: at most `MOST_BYTES` bytes."""
        row = self.trial
        judged = f"{row.verdict}: {row.verdict_reason}" if row.verdict_reason else row.verdict
        parts = [
            bounded(300, [f"trial {row.trial_id} ({row.name}), {row.state}{f': {row.reason}' if row.reason else ''}"]),
            bounded(700, _given(parent=row.parent, hypothesis=row.hypothesis, verdict=judged)),
            bounded(
                500, [f"{name}: {_value(old)} -> {_value(new)}" for name, (old, new) in self.changed_hparams.items()]
            ),
            bounded(300, self._code()),
            self._changed_code(600),
            bounded(700, self._curve()),
            bounded(150, [", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())]),
            bounded(640, self.log, is_end_kept=True),
            bounded(160, [f"notes: {row.notes}"] if row.notes else []),
        ]
        return "\n".join(part for part in parts if part)

    def _code(self) -> list[str]:
        told = [f"code: {note}" for note in self.code_notes]
        if self.changed_lines is None:
            return told
        counts = list(map(_counted, self.changed_lines.values()))
        added, removed = (sum(numbers) for numbers in zip(*counts, strict=True)) if counts else (0, 0)
        return [f"code: +{added} -{removed} lines" if counts else "code: unchanged", *told]

    def _changed_code(self, most_bytes: int) -> str:
        """Returns the changed lines of the first files, each within its share of the bytes, and names the others."""
        files = dict(self.changed_lines or {})
        shown, others = list(files)[:_MOST_FILES], list(files)[_MOST_FILES:]
        named = bounded(150, [f"further files: {', '.join(others)}"] if others else [])
        left = most_bytes - len(named.encode()) - 1
        parts = []
        for index, name in enumerate(shown):
            parts.append(bounded(left // (len(shown) - index), files[name]))
            left -= len(parts[-1].encode()) + 1
        return "\n".join(part for part in (*parts, named) if part)

    def _curve(self) -> list[str]:
        if (curve := self.curve) is None:
            return ["no metric was reported"]
        better = "smaller" if curve.smaller_is_better else "larger"
        against = "" if curve.parent_best is None else f", the parent's {format_number(curve.parent_best)}"
        return [
            f"{curve.metric} ({better} is better): best {_point(curve.best)}{against}, last {_point(curve.last)}",
            " ".join(map(_point, curve.points)),
        ]


def read_evidence(home: Home, view: View, trial_id: int, metric: SearcherMetric | None = None) -> Evidence:
    """Reads the evidence of a trial.

    `metric` decides what is best; without it the searcher's does, or else the first one that was validated, or a metric
    of its training, of which smaller values are better. Raises `NotFoundError`.
    """
    row = view.trial(trial_id)
    deciding = metric or home.experiment(row.experiment_id).read().searcher_metric
    try:
        parent = None if row.parent is None else view.trial(row.parent)
    except TrialNotFoundError:  # it was deleted
        parent = None
    code = None if parent is None else code_changes(home.trial(parent.trial_id), home.trial(row.trial_id))
    return Evidence(
        trial=row,
        changed_hparams={} if parent is None else _differing(parent, row),
        changed_lines=None if code is None else code.files,
        code_notes=[] if code is None else code.notes,
        curve=_read_curve(view, row, parent, deciding),
        seconds=_seconds(view, row),
        log=[] if row.state in ("COMPLETED", "ACTIVE") else _log_tail(home, trial_id),
    )


def _differing(parent: TrialRow, row: TrialRow) -> dict[str, tuple[Any, Any]]:
    old, new = flat_hparams(parent.hparams), flat_hparams(row.hparams)
    names = [name for name in {**old, **new} if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
    return {name: (old.get(name), new.get(name)) for name in names}


def _read_curve(
    view: View, row: TrialRow, parent: TrialRow | None, deciding: SearcherMetric | None
) -> DecidingCurve | None:
    ranked = sorted(view.series(row.trial_id), key=lambda one: (one.group != "validation", one.group != "training"))
    chosen = next((one for one in ranked if deciding is None or one.name == deciding.name), None)
    if chosen is None:
        return None
    figures = view.figures([row.trial_id])[row.trial_id][chosen.group][chosen.name]
    if figures.minimum is None or figures.maximum is None:
        return None
    smaller_is_better = deciding is None or deciding.smaller_is_better
    lowest, highest = (_step_of(view, row.trial_id, chosen, value) for value in (figures.minimum, figures.maximum))
    extremes = {(lowest, figures.minimum), (highest, figures.maximum)}
    curves = read_curves(view, [Series(row.trial_id, chosen.group, chosen.name)], num_buckets=_NUM_BUCKETS)
    means = {(one.last_steps, one.mean) for curve in curves for one in curve.buckets if one.mean is not None}
    return DecidingCurve(
        metric=f"{chosen.group}.{chosen.name}",
        smaller_is_better=smaller_is_better,
        points=sorted(extremes | {point for point in means if point[0] not in (lowest, highest)}),
        best=(lowest, figures.minimum) if smaller_is_better else (highest, figures.maximum),
        last=(chosen.last_steps, figures.last),
        parent_best=None if parent is None else _best_of(view, parent, chosen, smaller_is_better),
    )


def _step_of(view: View, trial_id: int, series: SeriesRow, value: float) -> float:
    """Returns the first step of an extreme value."""
    within = (series.first_steps, series.last_steps)
    while True:
        buckets = view.buckets(trial_id, series.group, series.name, within=within)
        found = next(one for one in buckets if value in (one.minimum, one.maximum))
        narrower = int(found.first_steps), int(found.last_steps)
        if narrower[0] == narrower[1] or narrower == within:
            return found.first_steps
        within = narrower


def _best_of(view: View, row: TrialRow, series: SeriesRow, smaller_is_better: bool) -> float | None:
    figures = view.figures([row.trial_id])[row.trial_id].get(series.group, {}).get(series.name)
    if figures is None:
        return None
    return figures.minimum if smaller_is_better else figures.maximum


def _seconds(view: View, row: TrialRow) -> dict[str, float]:
    """Returns where the time went, by the reports of one metric of the training, or of whatever was reported."""
    of_training = sorted(view.series(row.trial_id), key=lambda one: one.group != "training")
    if not of_training or row.ended is None:
        return {}
    one = of_training[0]
    ends = [
        view.buckets(row.trial_id, one.group, one.name, 1, within=(step, step))[0]
        for step in (one.first_steps, one.last_steps)
    ]
    first, last = view.bucket_times(row.trial_id, one.group, one.name, ends)
    return {
        "until the first report": first - row.created,
        "until the last report": last - first,
        "until the end": row.ended - last,
    }


def _log_tail(home: Home, trial_id: int) -> list[str]:
    tail = b""
    for chunk in LogReader(home, trial_id).read():
        tail = (tail + chunk.content)[-_MOST_LOG_BYTES:]
    lines = [line.rstrip("\r") for line in tail.decode(errors="replace").split("\n") if line.strip()]
    return [line[:_MOST_LINE_CHARS] for line in lines[-_NUM_LOG_LINES:]]


def _given(**values: object) -> list[str]:
    return [f"{name}: {value}" for name, value in values.items() if value not in (None, "")]


def _counted(diff: Sequence[str]) -> tuple[int, int]:
    """Returns how many lines a diff of one file adds and removes."""
    return sum(line.startswith("+") for line in diff[1:]), sum(line.startswith("-") for line in diff)


def _value(value: object) -> str:
    return "absent" if value is None else format_number(value)


def _point(point: tuple[float, float]) -> str:
    steps, value = point
    return f"{steps:g}:{format_number(value)}"
