"""Finds out which ranks are late for a call, and describes them for the error of a call that has timed out."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.transport._messages import Status


class StatusSurvey:
    """A question to all other ranks, and the answers that have come."""

    def __init__(self, serial: int, num_asked: int) -> None:
        self.serial = serial
        self.answers: dict[int, Status] = {}
        self.is_over = threading.Event()
        """Is set when all ranks have answered, or when the answers are no longer needed."""
        self._num_asked = num_asked

    def hear(self, status: Status) -> None:
        if status.serial == self.serial:
            self.answers[status.rank] = status
            if len(self.answers) == self._num_asked:
                self.is_over.set()


def late_ranks(answers: Mapping[int, Status], size: int, number: int, asker: int) -> list[int]:
    """Returns the ranks for which call `number` waits: they do not answer, or have not begun it.

    A rank that is still in an earlier call, such as a chief that delivers its result, waits for one of the others. It
    is named only if there are none.
    """
    behind = [rank for rank in range(size) if rank != asker and not _has_begun(answers.get(rank), number)]
    return [rank for rank in behind if rank not in answers or not answers[rank].is_inside] or behind


def _has_begun(status: Status | None, number: int) -> bool:
    return status is not None and status.num_calls >= number


def findings_on(
    missing: Sequence[int], answers: Mapping[int, Status], ranks: Sequence[RankIdentity], number: int
) -> list[str]:
    """Returns a sentence about each missing rank."""
    return [_finding(ranks[rank], answers.get(rank), number) for rank in missing]


def _finding(identity: RankIdentity, status: Status | None, number: int) -> str:
    who = f"rank {identity.known_as} ({identity.process})"
    if status is None:
        return f"{who} does not answer: it is stopped, cut off, or in a long call that holds Python's interpreter lock"
    if not status.call:
        return f"{who} answers, and has made no call yet"
    if status.is_inside:
        return f"{who} answers, and is in {status.call}"
    if status.num_calls >= number:
        return f"{who} answers, and has made this call: its {status.call}"
    return f"{who} answers, and is in none; its last was {status.call}"
