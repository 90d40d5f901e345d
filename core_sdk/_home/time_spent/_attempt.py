"""Counts where the time of one attempt went, record by record."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from core_sdk._ground.records import AttemptStarted, CheckpointStored, Ended, PhaseEnded, Record, Report

_TRAINING = "training"
_VALIDATION = "validation"


class TimeMark(NamedTuple):
    """What an attempt's clock had counted up to the state that a checkpoint holds, in milliseconds."""

    at: int
    """The time of that state, since the Unix epoch."""
    loading: int
    validating: int
    saving: int


class AttemptClock(msgspec.Struct, array_like=True, gc=False):
    """The time that an attempt has spent in each phase up to its newest record, in whole milliseconds.

    It is fed with the records of the attempt's own journal, in their order. A time before that of an earlier record
    counts as that time: clocks jump. What it has counted always adds up to the time from its first record to its last.

    The time between two records is *training* unless a record says otherwise. Before the first report it is
    *starting*. When the second step is reported, the time until the first report is divided: as many steps as it
    counts, at the pace of the next ones, are training.
    """

    begun: int | None = None
    """The time of the first record, since the Unix epoch."""
    now: int = 0
    """The time of the newest record."""
    asked: int | None = None
    launched: int | None = None
    resumed_steps: int = 0
    training: int = 0
    starting: int = 0
    saving: int = 0
    loading: int = 0
    validating: int = 0
    num_checkpoints: int = 0
    num_saves: int = 0
    """The checkpoints of which it is known for how long their saves have held up the training."""
    ended: int | None = None
    last_steps: int = 0
    """The highest step that was reported."""
    first_steps: int | None = None
    """The steps that the first report counts; None before it."""
    pace_from: int = 0
    """The step of the first report."""
    first_ms: int = 0
    """The time until the first report, and"""
    first_loading: int = 0
    """the part of it that is known to be loading."""
    is_paced: bool = False
    has_trained: bool = False
    """Whether a report of the training has come."""
    open_ms: int = 0
    """The time since the last report of the training that counts as training so far, and may have been validation."""
    assumed_ms: int = 0
    """The part of `validating` since the last report of the training that no record has told."""
    has_told_validation: bool = False
    """Whether the script says when it validates."""

    @property
    def work(self) -> int:
        """The time since the first record, without the start."""
        return self.training + self.saving + self.loading + self.validating

    def feed_all(self, records: Iterable[Record]) -> list[tuple[CheckpointStored, TimeMark]]:
        """Counts records as `feed` does, and returns the marks of checkpoints.

        Of reports of the training that follow each other only the latest time counts, which makes it three times as
        fast: nearly all records are such reports.
        """
        marks = []
        latest, last_steps = -math.inf, 0
        for record in records:
            if (
                type(record) is Report
                and record.group == _TRAINING
                and record.loading_s is None
                and self.is_paced
                and self.has_trained
            ):
                latest, last_steps = max(latest, record.time), max(last_steps, record.steps_completed)
                continue
            if latest > -math.inf:
                self._take_reports(latest, last_steps)
                latest, last_steps = -math.inf, 0
            if (mark := self.feed(record)) is not None and isinstance(record, CheckpointStored):
                marks.append((record, mark))
        if latest > -math.inf:
            self._take_reports(latest, last_steps)
        return marks

    def _take_reports(self, time: float, steps: int) -> None:
        self.pass_to(milliseconds(time))
        self.last_steps = max(self.last_steps, steps)
        self.open_ms = self.assumed_ms = 0

    def feed(self, record: Record) -> TimeMark | None:
        """Counts a record. Returns the mark of a checkpoint."""
        self.pass_to(milliseconds(record.time))
        match record:
            case Report():
                self._take_report(record)
            case CheckpointStored():
                return self._take_save(record)
            case PhaseEnded():
                self._take_phase(record)
            case AttemptStarted():
                self.begun = self.now
                self.asked = None if record.asked is None else milliseconds(record.asked)
                self.launched = None if record.launched is None else milliseconds(record.launched)
                self.resumed_steps = self.last_steps = record.resumed_steps
            case Ended():
                self.ended = self.now
        return None

    def pass_to(self, now: int) -> None:
        """Counts the time until the attempt's end, or until the present if it runs."""
        if self.begun is None:
            self.begun = self.now = now
        passed = max(0, now - self.now)
        self.now += passed
        if self.first_steps is None:
            self.starting += passed
        else:
            self.training += passed
            self.open_ms += passed

    def _take_report(self, report: Report) -> None:
        steps = report.steps_completed
        self.last_steps = max(self.last_steps, steps)
        if report.loading_s:
            self.loading += self._withdraw(_duration(report.loading_s))
        if report.group == _TRAINING:
            self.open_ms = self.assumed_ms = 0
            if not self.has_trained and self.first_steps == 0:
                self.pace_from, self.is_paced = steps, True  # what came before was no training
            self.has_trained = True
        elif report.group == _VALIDATION and self.has_trained:
            if not self.has_told_validation:
                self.training -= self.open_ms
                self.validating += self.open_ms
                self.assumed_ms += self.open_ms
            self.open_ms = 0
            return
        elif self.has_trained:
            return
        self._keep_pace(steps)

    def _keep_pace(self, steps: int) -> None:
        if self.first_steps is None:
            self.first_steps = max(0, steps - self.resumed_steps)
            self.pace_from, self.first_loading = steps, self.loading
            self.first_ms = self.starting + self.loading
            if self.first_steps:  # until there is a pace
                self.training, self.starting = self.training + self.starting, 0
            else:
                self.is_paced = True
        elif not self.is_paced and steps > self.pace_from:
            self.is_paced = True
            since = max(0, self.training + self.loading - self.first_ms)
            trained = since * self.first_steps // (steps - self.pace_from)
            started = min(max(0, self.first_ms - trained), self.first_ms - self.first_loading, self.training)
            self.training -= started
            self.starting += started

    def _take_save(self, record: CheckpointStored) -> TimeMark:
        self.num_checkpoints += 1
        if record.saving_s is not None:
            self.saving += self._withdraw(_duration(record.saving_s))
            self.num_saves += 1
        return TimeMark(self.now - _duration(record.behind_s or 0.0), self.loading, self.validating, self.saving)

    def _take_phase(self, record: PhaseEnded) -> None:
        lasted = _duration(record.seconds)
        if record.phase != _VALIDATION:
            return
        self.has_told_validation = True
        self.validating -= self.assumed_ms
        self.training += self.assumed_ms
        self.open_ms += self.assumed_ms
        self.assumed_ms = 0
        self.validating += self._withdraw(lasted)

    def _withdraw(self, duration: int) -> int:
        """Takes time that was something else from the training, or from the start; returns how much there was."""
        if self.first_steps is None:
            taken = min(duration, self.starting)
            self.starting -= taken
            return taken
        taken = min(duration, self.training)
        self.training -= taken
        self.open_ms = max(0, self.open_ms - taken)
        return taken


def milliseconds(time: float) -> int:
    """Returns a time in seconds as whole milliseconds."""
    return round(time * 1000)


def _duration(seconds: float) -> int:
    return max(0, milliseconds(seconds))
