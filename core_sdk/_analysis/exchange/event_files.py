"""TensorBoard's event files: a run is a directory with some."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core_sdk._analysis.exchange.run import RESTART, ForeignRun, Row, rows_of
from core_sdk._analysis.tensorboard.reading import EventFileReader

_OF_ADD_HPARAMS = re.compile(r"\d{10}\.\d+")
"""The directory that `SummaryWriter.add_hparams` makes in its run's directory, named by the time."""


def event_file_runs(root: Path, files: Mapping[Path, Sequence[Path]]) -> Iterator[ForeignRun]:
    """Yields the runs below a directory, of event files by their directories, in order."""
    root = root.resolve() if root.is_dir() else root.resolve().parent
    of_runs: dict[Path, list[Path]] = {}
    for directory, found in files.items():
        belongs_above = _OF_ADD_HPARAMS.fullmatch(directory.name) and directory.parent in of_runs
        of_runs.setdefault(directory.parent if belongs_above else directory, []).extend(found)
    for directory, found in of_runs.items():
        reader = EventFileReader(found)
        began = reader.began()
        is_root = directory.resolve() == root
        run = ForeignRun(
            key=f"tensorboard:{found[0].name}@{began!r}",
            where=str(directory),
            experiment=root.parent.name if is_root else root.name,
            name=root.name if is_root else directory.resolve().relative_to(root).as_posix(),
            created=began or None,
            hparams=reader.hparams,
            losses=reader.losses,
        )
        run.rows = _rows(run, reader)
        yield run


def _rows(run: ForeignRun, reader: EventFileReader) -> Iterator[Row]:
    has_rows = False
    points = ((at, step, tag, RESTART if value is None else value) for at, step, tag, value in reader.points())
    for row in rows_of(points):
        if row[2] is not RESTART or has_rows:
            has_rows = True
            yield row
    if reader.has_failed:
        run.outcome, run.error = "error", "it was recorded as failed"
