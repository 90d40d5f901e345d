"""A question to all ranks, asked when some are late: how are you?"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from core_sdk.distributed._messages import Place, Status

_PATIENCE_S = 1.0


class Survey:
    """The chief's own, or on behalf of the rank `asker`, who calls it `asked`."""

    def __init__(self, asker: int, asked: int, num_expected: int) -> None:
        self.asker = asker
        self.asked = asked
        self.num_expected = num_expected
        self.answers: dict[int, Status] = {}
        self.is_complete = threading.Event()
        self._expires_at = time.monotonic() + _PATIENCE_S

    def is_late(self) -> bool:
        return time.monotonic() > self._expires_at


def late_ranks(answers: Mapping[int, Status], size: int, number: int, asker: int) -> list[int]:
    """The ranks that have not begun call `number`, or do not answer."""
    return [rank for rank in range(size) if rank != asker and (rank not in answers or answers[rank].num_calls < number)]


def findings_on(
    missing: Sequence[int], answers: Mapping[int, Status], places: Sequence[Place], number: int
) -> list[str]:
    """What is known of each rank that is waited for."""
    return [_finding(places[rank], answers.get(rank), number) for rank in missing]


def _finding(place: Place, status: Status | None, number: int) -> str:
    who = f"rank {place.known_as} ({place.process})"
    if status is None:
        return f"{who} does not answer: it is stopped, cut off, or in a long call that holds Python's interpreter lock"
    if not status.call:
        return f"{who} answers, and has made no call yet"
    if status.is_inside:
        return f"{who} answers, and is in {status.call}"
    if status.num_calls >= number:
        return f"{who} answers, and has made this call: its {status.call}"
    return f"{who} answers, and is in none; its last was {status.call}"
