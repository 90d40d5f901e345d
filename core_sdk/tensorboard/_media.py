"""Encodes media as TensorBoard's events: images, audio, histograms and texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from core_sdk.files import read_regular
from core_sdk.records import MEDIA_DIRECTORY, MediaFile, Report, from_json, media_in
from core_sdk.tensorboard._encoding import audio, histogram, image, text
from core_sdk.tensorboard._scalars import tag_of

_IMAGES = ("image/png", "image/jpeg", "image/gif")
"""The types of images that TensorBoard shows."""


class Medium(NamedTuple):
    """A file of media at a step."""

    wall_time: float
    step: int
    tag: str
    file: MediaFile
    directory: Path

    def encoded(self) -> bytes | None:
        """Returns the event, or None for what TensorBoard has no form for, and for a file that is damaged."""
        try:
            content = read_regular(self.directory / self.file.name)
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest() != self.file.sha256:
            return None
        where = self.wall_time, self.step, self.tag
        if self.file.media_type in _IMAGES:
            return image(*where, content, self.file.width or 0, self.file.height or 0)
        match self.file.kind:
            case "audio":
                return audio(*where, content, self.file.media_type)
            case "text":
                return text(*where, content)
            case "histogram":
                value = from_json(msgspec.json.decode(content))
                return histogram(*where, value["counts"], value["edges"])
            case _:
                return None


def media_of(report: Report, trial_directory: Path) -> Iterator[Medium]:
    try:
        metrics = from_json(report.json_metrics or {})
    except ValueError:
        return  # nobody could read the report
    for metric, value in metrics.items():
        for name, file in media_in(value, metric):
            tag = tag_of(report.group, name)
            yield Medium(report.time, report.steps_completed, tag, file, trial_directory / MEDIA_DIRECTORY)
