"""Converts the records of a journal to points of curves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from core_sdk.journal import read_journal
from core_sdk.records import FORMAT, AttemptStarted, Metric, Report, number_from_json


class Scalar(NamedTuple):
    """A point of a curve."""

    wall_time: float
    step: int
    tag: str
    value: float


def scalars_of(report: Report) -> Iterator[Scalar]:
    """Yields the points of a report.

    Metrics of a batch are points at the batch's own step. Metrics of the report are points at `steps_completed`, unless
    the batches have the same names.
    """
    batches = report.batch_metrics or []
    first_step = report.steps_completed - len(batches)
    for batch_index, batch in enumerate(batches):
        for name, value in _floats(batch):
            yield Scalar(report.time, first_step + batch_index, tag_of(report.group, name), value)
    names_in_batches = set().union(*batches)
    for name, value in _floats(report.metrics):
        if name not in names_in_batches:
            yield Scalar(report.time, report.steps_completed, tag_of(report.group, name), value)


def _floats(metrics: Mapping[str, Metric | str]) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        yield name, number_from_json(value) if isinstance(value, str) else float(value)


def tag_of(group: str, name: str) -> str:
    if group == "training":
        return f"Determined/{name}"
    if group == "validation":
        return f"Determined/{name}" if name.startswith("val") else f"Determined/val_{name}"
    return f"{group}/{name}"


class JournalScalars:
    """Reads the scalars of a journal in order and in small portions, as far as the journal has been written."""

    def __init__(self, journal_path: Path, *, chunk_bytes: int, verify: bool) -> None:
        self.journal_path = journal_path
        self._chunk_bytes = chunk_bytes
        self._verify = verify
        self.offset = 0
        """The number of bytes of the journal that have been read."""
        self.started = _attempt_at(journal_path)
        """The first record of the journal, known after the first portion."""
        self._decoded: Iterator[Scalar] = iter(())
        self._is_drained = True

    def read(self, max_scalars: int) -> list[Scalar] | None:
        """Returns the next portion, or None at the journal's present end. A portion may be empty before the end."""
        if self._is_drained and not self._decode_chunk():
            return None
        portion = list(itertools.islice(self._decoded, max_scalars))
        self._is_drained = len(portion) < max_scalars
        return portion

    def has_read(self, size_bytes: int) -> bool:
        """Returns whether `read` has returned all scalars of the journal's first `size_bytes`."""
        return self._is_drained and self.offset >= size_bytes

    def _decode_chunk(self) -> bool:
        chunks = read_journal(self.journal_path, self.offset, chunk_bytes=self._chunk_bytes, verify=self._verify)
        chunk = next(chunks, None)
        if chunk is None:
            return False
        if self.offset == 0 and chunk.records:
            first = chunk.records[0]
            # A damaged first line must not hide the rest.
            self.started = first if isinstance(first, AttemptStarted) else replace(self.started, time=first.time)
        self.offset = chunk.end_offset
        reports = (record for record in chunk.records if isinstance(record, Report))
        self._decoded = itertools.chain.from_iterable(map(scalars_of, reports))
        return True


def _attempt_at(journal_path: Path) -> AttemptStarted:
    trial, attempt = journal_path.parent.name, journal_path.stem
    return AttemptStarted(
        time=0.0,
        format=FORMAT,
        trial_id=int(trial) if trial.isdecimal() else 0,
        attempt=int(attempt) if attempt.isdecimal() else 0,
        host="unknown",
        pid=0,
        sdk_version="unknown",
    )
