"""The actions that follow from an experiment's events. The master records an action first, and then carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from core_sdk._ground.records import FinalState


@dataclass(frozen=True)
class AskToStop:
    """Ask the trial's attempt to save a checkpoint and to end."""

    request_id: UUID
    reason: str


@dataclass(frozen=True)
class Kill:
    """Kill the trial's attempt."""

    request_id: UUID
    reason: str


@dataclass(frozen=True)
class TellLength:
    """Tell the trial's script how far to train."""

    request_id: UUID


@dataclass(frozen=True)
class Settle:
    """Record in a trial's folder how the trial ended, if it ended while it had no process."""

    request_id: UUID


@dataclass(frozen=True)
class Finish:
    """Record that the experiment has ended."""

    state: FinalState
    reason: str


Action = AskToStop | Kill | TellLength | Settle | Finish
