"""Reads the metrics that a script writes into files: JSON lines, or TensorBoard's event files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from core_sdk._ground.records import Report

_EVENTS = "tfevents"


class MetricFiles:
    """The file, or all files of a directory, read again and again while a training writes them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[Path, tuple[int, int]] = {}
        """The size and the time of each file, when it was last read."""
        self._num_taken: dict[Path, int] = {}
        """The number of reports of each file that were taken."""

    def take_new(self) -> list[Report]:
        """Returns what was written since the last call, in order. A file that is shorter than before is all new."""
        found = []
        for path in self._files():
            status = path.stat()
            mark = status.st_size, status.st_mtime_ns
            if self._seen.get(path) == mark:
                continue
            self._seen[path] = mark
            reports = list(_events(path) if _EVENTS in path.name else _json_lines(path))
            taken = self._num_taken.get(path, 0)
            found += reports[taken:] if taken <= len(reports) else reports
            self._num_taken[path] = len(reports)
        return found

    def _files(self) -> list[Path]:
        if self._path.is_file():
            return [self._path]
        found = (each for each in self._path.rglob("*") if each.suffix == ".jsonl" or _EVENTS in each.name)
        # The files of later attempts come later, whatever their names are.
        return sorted((each for each in found if each.is_file()), key=lambda each: (each.stat().st_mtime_ns, each.name))


def _json_lines(path: Path) -> Iterator[Report]:
    # The last line may not be complete yet.
    for line in path.read_text(errors="replace").split("\n")[:-1]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        step = row.get("step") if isinstance(row, dict) else None
        if isinstance(step, int):
            numbers = {name: value for name, value in row.items() if name != "step" and type(value) in (int, float)}
            yield Report(0.0, "", step, numbers)


def _events(path: Path) -> Iterator[Report]:
    from core_sdk._analysis.tensorboard.reading import EventFileReader  # needs TensorBoard

    for time, step, tag, value in EventFileReader([path]).points():
        if isinstance(value, float):
            yield Report(time, "", step, {tag: value})
