"""Disturbs a training at a chosen record, as `core-sdk check-resume` asks, to show how it goes on."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from typing import Literal

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.environment import disturbance
from core_sdk._ground.records import CheckpointBegun, Record, Report
from core_sdk._home.journal import HeardJournal, Journal
from core_sdk.core._preempt._context import PreemptContext

SOURCE = "core-sdk check-resume"

How = Literal["stop", "sigterm", "kill"]


class Disturbance(msgspec.Struct, frozen=True):
    """A disturbance of a training, once, right after a record of its attempt. The default record is a report.

    The report is the first of `group` (any, if empty) at `step` or beyond it, or else the one with this `number`.
    """

    how: How
    step: int = 0
    group: str = ""
    number: int = 0
    """The number of the report, or of the save, in this attempt, counted from 1; 0 if `step` says which report."""
    in_save: bool = False
    """Whether the record is a save instead: its files are written, and it is not yet visible."""
    delay_s: float = 0.0
    """The time in seconds from the record to the disturbance."""

    def is_due(self, record: Record, number: int) -> bool:
        """Returns whether the record, which is the one of its kind with this number, is the one that is meant. Pure."""
        match record:
            case CheckpointBegun():
                return self.in_save and number == self.number
            case Report() if not self.in_save:
                is_at_step = record.steps_completed >= self.step and self.group in ("", record.group)
                return number == self.number if self.number else is_at_step
            case _:
                return False


class Disturber:
    """Carries out a disturbance in the process of one rank."""

    def __init__(self, planned: Disturbance) -> None:
        self._planned = planned
        self._numbers = Counter[type[Record]]()
        """The number of records of each kind."""
        self._is_done = False
        self.preempt: PreemptContext | None = None
        """Set once the Context is made: nothing is reported before."""

    def heard(self, journal: Journal) -> Journal:
        """Returns the journal with this disturber as its listener."""
        return HeardJournal(journal, self._hear)

    def _hear(self, record: Record) -> None:
        self._numbers[type(record)] += 1
        if self._is_done or not self._planned.is_due(record, self._numbers[type(record)]):
            return
        self._is_done = True
        if self._planned.delay_s:
            timer = threading.Timer(self._planned.delay_s, self._disturb)
            timer.daemon = True
            timer.start()
        else:
            self._disturb()

    def _disturb(self) -> None:
        if self._planned.how == "stop" and self.preempt is not None:
            self.preempt.ask_to_stop(SOURCE)
        elif self._planned.how == "sigterm":
            os.kill(os.getpid(), signal.SIGTERM)
        elif self._planned.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def disturber() -> Disturber | None:
    """Returns the disturber for which this process's environment asks; None if it asks for none, as usual."""
    return None if (planned := disturbance()) == "" else Disturber(json_decoder(Disturbance)(planned))
