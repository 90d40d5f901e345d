"""What an experiment wants done. The master does it, after it has recorded that it is about to."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from core_sdk.records import FinalState


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
class Order:
    """Let the trial's script know how far to train."""

    request_id: UUID


@dataclass(frozen=True)
class Settle:
    """Record with a trial that had no process how it ended."""

    request_id: UUID


@dataclass(frozen=True)
class Finish:
    """Record that the experiment has ended."""

    state: FinalState
    reason: str


Action = AskToStop | Kill | Order | Settle | Finish
