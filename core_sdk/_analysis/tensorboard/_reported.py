"""Turns the reports of a trial into TensorBoard's events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING

from core_sdk._analysis.tensorboard._frames import framed
from core_sdk._ground.records import (
    AttemptStarted,
    MediaFile,
    Metric,
    Record,
    Report,
    from_json,
    media_in,
    number_from_json,
)
from core_sdk._home import TrialFolder
from core_sdk._home.journal import read_journal
from core_sdk._home.media import read_media
from core_sdk.errors import RecordDamagedError

_IMAGES = ("image/png", "image/jpeg", "image/gif")
"""The types of images that TensorBoard shows."""


class ReportedEvents:
    """The event files of what a trial has reported: one for each attempt, in the order of their names."""

    def __init__(self, trial: TrialFolder, directory: Path) -> None:
        self._trial = trial
        self._directory = directory
        self._offsets: dict[int, int] = {}
        """The number of bytes that have been read of the journal of each attempt."""

    def write_new(self) -> None:
        """Writes what was recorded since the last call. The first call replaces files of an earlier export."""
        for attempt in self._trial.attempts():
            journal = self._trial.journal_path(attempt)
            if journal.exists():
                self._write_attempt(attempt, journal)

    def _write_attempt(self, attempt: int, journal: Path) -> None:
        path = self._directory / f"events.out.tfevents.{attempt:06}"
        for chunk in read_journal(journal, self._offsets.get(attempt, 0)):
            if chunk.records:
                is_new = attempt not in self._offsets
                first = [Event(wall_time=chunk.records[0].time, file_version="brain.Event:2")] if is_new else []
                events = [*first, *(event for record in chunk.records for event in self._events(record))]
                with path.open("wb" if is_new else "ab") as file:
                    file.write(b"".join(framed(event.SerializeToString()) for event in events))
                self._offsets[attempt] = chunk.end_offset

    def _events(self, record: Record) -> Iterator[Any]:
        if isinstance(record, Report):
            yield from _of_report(record, self._trial.media_path)
        elif isinstance(record, AttemptStarted) and record.attempt > 1:
            # TensorBoard discards what earlier files have from this step on: it is superseded.
            has_earlier = record.latest_checkpoint is not None or record.resumed_steps > 0
            step = record.resumed_steps + 1 if has_earlier else 0
            yield Event(wall_time=record.time, step=step, session_log=SessionLog(status=SessionLog.START))


def _of_report(report: Report, media_path: Path) -> Iterator[Any]:
    """Yields the events of a report.

    Metrics of a batch stand at the batch's own step. Metrics of the report stand at `steps_completed`, unless the
    batches have the same names.
    """
    batches = report.batch_metrics or []
    for step, batch in enumerate(batches, start=report.steps_completed - len(batches)):
        yield _event(report, step, _scalars(report.group, batch))
    of_batches = set().union(*batches)
    metrics = {name: value for name, value in report.metrics.items() if name not in of_batches}
    values = [*_scalars(report.group, metrics), *_media(report, media_path)]
    if values:
        yield _event(report, report.steps_completed, values)


def _event(report: Report, step: int, values: list[Any]) -> Any:
    return Event(wall_time=report.time, step=step, summary=Summary(value=values))


def _scalars(group: str, metrics: Mapping[str, Metric | str]) -> list[Any]:
    # TensorBoard keeps 32-bit floats: a larger value becomes an infinity.
    return [
        Summary.Value(
            tag=_tag(group, name), simple_value=number_from_json(value) if isinstance(value, str) else float(value)
        )
        for name, value in metrics.items()
    ]


def _tag(group: str, name: str) -> str:
    if group == "training":
        return f"Determined/{name}"
    if group == "validation":
        return f"Determined/{name}" if name.startswith("val") else f"Determined/val_{name}"
    return f"{group}/{name}"


def _media(report: Report, media_path: Path) -> Iterator[Any]:
    """Yields the media of a report that TensorBoard has a form for. Those that are damaged are left out."""
    try:
        metrics = from_json(report.json_metrics or {})
    except ValueError:
        return  # nobody could read the report
    for metric, metric_value in metrics.items():
        for name, file in media_in(metric_value, metric):
            try:
                value = _medium(file, read_media(media_path, file.name))
            except RecordDamagedError:
                continue
            if value is not None:
                value.tag = _tag(report.group, name)
                yield value


def _medium(file: MediaFile, content: bytes) -> Any:
    if file.media_type in _IMAGES:
        image = Summary.Image(height=file.height or 0, width=file.width or 0, encoded_image_string=content)
        return Summary.Value(image=image)
    match file.kind:
        case "audio":
            return Summary.Value(audio=Summary.Audio(encoded_audio_string=content, content_type=file.media_type))
        case "text":
            shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
            tensor = TensorProto(dtype=DT_STRING, tensor_shape=shape, string_val=[content])
            plugin = SummaryMetadata.PluginData(plugin_name="text")
            return Summary.Value(tensor=tensor, metadata=SummaryMetadata(plugin_data=plugin))
        case "histogram":
            return Summary.Value(histo=_histogram(**from_json(msgspec.json.decode(content))))
        case _:
            return None


def _histogram(counts: list[float], edges: list[float], **_: Any) -> Any:
    """Returns a histogram whose sums are computed as if each value lay in the middle of its bin."""
    weights = [(count, (low + high) / 2) for count, (low, high) in zip(counts, pairwise(edges), strict=True)]
    return HistogramProto(
        min=edges[0],
        max=edges[-1],
        num=sum(counts),
        sum=sum(count * middle for count, middle in weights),
        sum_squares=sum(count * middle * middle for count, middle in weights),
        bucket_limit=edges[1:],
        bucket=counts,
    )
