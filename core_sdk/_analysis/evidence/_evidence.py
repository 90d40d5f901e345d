"""Reads the evidence of a trial, and writes it as text of at most 4 KB.

Each part has a share of the bytes; what a part leaves out is counted. So a long traceback cannot displace the curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_sdk._analysis.evidence._bounds import bounded
from core_sdk._analysis.evidence._code import code_changes
from core_sdk._analysis.evidence._curve import DecidingCurve, read_curve
from core_sdk._analysis.machine_use import MachineUse, read_machine_use
from core_sdk._analysis.studies import judgement_lines
from core_sdk._ground.records import SearcherMetric, format_number
from core_sdk._home import Home, View
from core_sdk._home.finding.best import deciding_metric_of_trial
from core_sdk._home.finding.facts import flat_hparams, metric_named
from core_sdk._home.finding.time_ledger import TimeLedger, read_ledger
from core_sdk._home.finding.tries import read_tries
from core_sdk._home.logs.stream import LogReader
from core_sdk._home.rows import TrialRow
from core_sdk.errors import NotRecordedError, TrialNotFoundError

_NUM_LOG_LINES = 20
_MOST_LOG_BYTES = 64 << 10
_MOST_LINE_CHARS = 160
_MOST_FILES = 4
_ABSENT = object()


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
    metric: str | None
    """The metric that decides; None if nobody has said."""
    metrics: Sequence[str]
    """The metrics that it has reported, with their groups."""
    curve: DecidingCurve | None
    """The curve of the metric that decides, or else of any; None if it was not reported."""
    seconds: dict[str, float]
    """The seconds from the start to the first report, from there to the last one, and from there to the end."""
    time: TimeLedger
    """The time by phases, and how often to save."""
    machine: MachineUse | None
    """The use of its machines; None if nothing was recorded of them."""
    log: list[str]
    """The last lines of its output, if it has not ended well."""
    judgement: list[str]
    """The value of its try beside the parent's, judged against noise, and alarms; empty for a trial of no try."""

    def text(self) -> str:
        """Returns the evidence as text for people and models: at most `MOST_BYTES` bytes."""
        row = self.trial
        judged = f"{row.verdict}: {row.verdict_reason}" if row.verdict_reason else row.verdict
        parts = [
            bounded(300, [f"trial {row.trial_id} ({row.name}), {row.state}{f': {row.reason}' if row.reason else ''}"]),
            bounded(470, self.judgement),
            bounded(540, _given(parent=row.parent, hypothesis=row.hypothesis, verdict=judged)),
            bounded(
                400, [f"{name}: {_value(old)} -> {_value(new)}" for name, (old, new) in self.changed_hparams.items()]
            ),
            bounded(300, self._code()),
            self._changed_code(600),
            bounded(660, self._curve()),
            bounded(190, [f"time: {self.time.words()}"] if self.time.time.wall else []),
            bounded(190, [f"machine: {self.machine.words()}"] if self.machine else []),
            bounded(480, self.log, is_end_kept=True),
            bounded(110, [f"notes: {row.notes}"] if row.notes else []),
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
        if self.curve is not None:
            return self.curve.lines()
        if not self.metrics:
            return ["no metric was reported"]
        return [f"{self.metric} was not reported; there are: {', '.join(self.metrics)}"]


def read_evidence(
    home: Home, view: View, trial_id: int, name: str | None = None, smaller_is_better: bool | None = None
) -> Evidence:
    """Reads the evidence of a trial.

    The metric that is named decides what is best, or else the recorded one. If there is none, the curve is that of the
    first metric that was validated, or of one of its training, and none of its values is called the best.

    Raises `NotFoundError`, and `NotRecordedError` for a named metric that no trial of the experiment has reported.
    """
    row = view.trial(trial_id)
    deciding = deciding_metric_of_trial(home, row, name, smaller_is_better)
    reported = [f"{one.group}.{one.name}" for one in view.series(trial_id)]
    if name is not None and reported and metric_named(name, view.metric_names(row.experiment_id)) is None:
        raise NotRecordedError(f"trial {trial_id} has no metric {name!r}", "The metrics", reported)
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
        metric=deciding.name if deciding else None,
        metrics=reported,
        curve=read_curve(view, row, parent, deciding),
        seconds=_seconds(view, row),
        time=read_ledger(view, trial_id=trial_id),
        machine=read_machine_use(view, trial_id),
        log=[] if row.state in ("COMPLETED", "ACTIVE") else _log_tail(home, trial_id),
        judgement=[] if row.try_id is None else _judgement(home, view, row),
    )


def _judgement(home: Home, view: View, row: TrialRow) -> list[str]:
    study = home.experiment(row.experiment_id).read().study
    if study is None:
        return []
    tries = read_tries(view, row.experiment_id, SearcherMetric.named(study.best_by))
    return judgement_lines(home, view, study, tries, tries.of_trial(row.trial_id))


def _differing(parent: TrialRow, row: TrialRow) -> dict[str, tuple[Any, Any]]:
    old, new = flat_hparams(parent.hparams), flat_hparams(row.hparams)
    names = [name for name in {**old, **new} if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
    return {name: (old.get(name), new.get(name)) for name in names}


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
