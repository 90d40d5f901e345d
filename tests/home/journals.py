"""Trials written byte by byte, as scripts, copies and crashes leave them; and all that an index says of them."""

from __future__ import annotations

import math
import os
import time
from itertools import chain
from typing import Any

import msgspec

from core_sdk._ground.records import (
    FORMAT,
    AttemptStarted,
    CheckpointStored,
    Metric,
    Record,
    Report,
    Source,
    TrialRecord,
)
from core_sdk._home import Home, TrialFolder
from core_sdk._home.index import Index
from core_sdk._home.journal import encode_line
from core_sdk._home.rows import CheckpointRow, ReportRow

START = 1_750_000_000.0
PROFILER_GROUP = "cpu"


def new_trial(home: Home, experiment: str = "digits", **hparams: Any) -> TrialFolder:
    Home.create(home.root)
    folder = home.create_trial()
    experiment_id = home.find_or_create_experiment(experiment).experiment_id
    folder.write_record(
        TrialRecord(trial_id=folder.trial_id, experiment_id=experiment_id, created=START, seed=0, hparams=hparams)
    )
    return folder


def vary(folder: TrialFolder, parent: int | None, hypothesis: str) -> None:
    """Makes the trial a variation of another one."""
    trial = folder.read_record()
    trial.parent, trial.hypothesis = parent, hypothesis
    folder.write_record(trial)


def started(folder: TrialFolder, attempt: int = 1, resumed_steps: int = 0, rank: Source = 0) -> AttemptStarted:
    return AttemptStarted(
        time=START + 1000 * attempt,
        format=FORMAT,
        trial_id=folder.trial_id,
        attempt=attempt,
        host=f"node{rank}",
        pid=1,
        sdk_version="0",
        resumed_steps=resumed_steps,
        rank=rank if isinstance(rank, int) else 0,
        writer=rank if isinstance(rank, str) else "",
    )


def report(steps: int, group: str = "training", attempt: int = 1, **metrics: float | str) -> Report:
    return Report(START + 1000 * attempt + 0.37 * steps, group, steps, dict(metrics))


def stored(storage_id: str, steps: int, storage: str = "s3://bucket", time: float = START) -> CheckpointStored:
    return CheckpointStored(
        time=time, storage_id=storage_id, storage=storage, steps_completed=steps, metadata={}, resources={"weights": 7}
    )


def lines(*records: Record) -> bytes:
    return b"".join(map(encode_line, records))


def append(folder: TrialFolder, attempt: int, content: bytes, rank: Source = 0) -> None:
    """Appends to the journal of an attempt; 0 is the trial's changes.journal."""
    path = folder.journal_path(attempt, rank) if attempt else folder.changes_path
    with path.open("ab") as journal:
        journal.write(content)


def record(folder: TrialFolder, *records: Record, attempt: int = 1, resumed_steps: int = 0, rank: Source = 0) -> None:
    """Writes the journal of one rank or writer for a whole attempt that is not running."""
    append(folder, attempt, lines(started(folder, attempt, resumed_steps, rank), *records), rank)


def age(folder: TrialFolder) -> None:
    """Sets the folder's time back, as if nothing had changed in it for long."""
    long_ago = time.time() - 1000
    os.utime(folder.path, (long_ago, long_ago))


def everything(index: Index) -> str:
    """Returns all answers of the index as text, since NaN is not equal to itself."""
    trials = index.trials()
    told: list[object] = [index.experiments(), trials, list(map(_in_order, index.checkpoints()))]
    for trial in trials:
        told.append(list(map(_in_order, index.reports(trial.trial_id, superseded=True))))
        told.append(list(map(_in_order, index.reports(trial.trial_id))))
        told.append(list(map(_in_order, index.reports(trial.trial_id, PROFILER_GROUP))))
        told.append(sorted(index.series(trial.trial_id), key=lambda row: (row.group, row.name)))
        summary = index.summary(trial.trial_id)
        for figures in chain.from_iterable(names.values() for names in summary.values()):
            figures["mean"] = figures["mean"] and float(f"{figures['mean']:.12g}")  # it is added up block by block
        told.append(sorted((group, sorted(names.items())) for group, names in summary.items()))
        extremes = extremes_told(index, trial.trial_id)
        assert extremes.keys() == {(group, name) for group, names in summary.items() for name in names}
        for (group, name), extreme in extremes.items():
            # Those of the summary may be infinite.
            for value, found in zip(extreme, map(summary[group][name].get, ("min", "max")), strict=True):
                assert value == found or (found is not None and math.isinf(found))
    return "\n".join(map(repr, told))


def _in_order(row: ReportRow | CheckpointRow) -> ReportRow | CheckpointRow:
    """Returns a report or checkpoint with its metrics by name: their order depends on when each was first read."""
    return msgspec.structs.replace(row, metrics=dict(sorted(row.metrics.items())))


def extremes_told(index: Index, trial_id: int) -> dict[tuple[str, str], tuple[Metric | None, Metric | None]]:
    """Returns the finite extremes of each metric as the index stores them, without a look at the points."""
    told = index.figures([trial_id]).get(trial_id, {})
    return {
        (group, name): (figures.minimum, figures.maximum)
        for group, names in told.items()
        for name, figures in names.items()
    }


def rebuilt(home: Home) -> str:
    """Returns all answers of an index that was rebuilt from the journals."""
    Index.rebuild(home)
    with Index(home) as index:
        return everything(index)
