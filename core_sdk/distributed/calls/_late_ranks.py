"""A question to all ranks, asked when some are late: how are you?"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from core_sdk.distributed._topology import RankIdentity
from core_sdk.distributed.transport._messages import Status

_PATIENCE_S = 1.0


class Survey:
    """The chief's own, or on behalf of the rank `asker`, who calls it `asked`."""

    def __init__(self, asker: int, asked: int) -> None:
        self.asker = asker
        self.asked = asked
        self.answers: dict[int, Status] = {}
        self.is_complete = threading.Event()
        self._expires_at = time.monotonic() + _PATIENCE_S

    def is_late(self) -> bool:
        return time.monotonic() > self._expires_at


class Surveys:
    """Those of one chief. The calling thread and the channel's may both begin one."""

    def __init__(self, num_members: int, *, ask_all: Callable[[int], None], on_end: Callable[[Survey], None]) -> None:
        """`ask_all` gets the serial number of the question, `on_end` what has been answered in time."""
        self._num_members = num_members
        self._ask_all = ask_all
        self._on_end = on_end
        self._running: dict[int, Survey] = {}
        self._serials = itertools.count(1)

    def start(self, asker: int, asked: int = 0) -> Survey:
        serial = next(self._serials)
        survey = self._running[serial] = Survey(asker, asked)
        self._ask_all(serial)
        return survey

    def hear(self, rank: int, status: Status) -> None:
        if (survey := self._running.get(status.serial)) is None:
            return
        survey.answers[rank] = status
        if len(survey.answers) == self._num_members:
            self._end(status.serial)

    def end_late(self) -> None:
        # A copy: the calling thread may begin another one meanwhile.
        for serial in [serial for serial, survey in list(self._running.items()) if survey.is_late()]:
            self._end(serial)

    def _end(self, serial: int) -> None:
        survey = self._running.pop(serial)
        survey.is_complete.set()
        self._on_end(survey)


def late_ranks(answers: Mapping[int, Status], size: int, number: int, asker: int) -> list[int]:
    """The ranks that have not begun call `number`, or do not answer."""
    return [rank for rank in range(size) if rank != asker and (rank not in answers or answers[rank].num_calls < number)]


def findings_on(
    missing: Sequence[int], answers: Mapping[int, Status], ranks: Sequence[RankIdentity], number: int
) -> list[str]:
    """What is known of each rank that is waited for."""
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
