"""Agrees on the ranks that bring a checkpoint to a report, without a collective in reports that have none.

Rank 0 decides which reports have a checkpoint. It asks the other ranks whether they bring files of their own. The
channel's thread answers for a rank whose function is already beyond that report. A rank that brings a checkpoint waits
for rank 0's decision.
"""

from __future__ import annotations

import threading
import time

import msgspec

from core_sdk.distributed import Channel
from core_sdk.errors import UnevenReportsError

_TOPIC = "report"
_LOOK_S = 0.2


class Asked(msgspec.Struct, frozen=True, tag=True):
    """Tells all ranks that rank 0 brings a checkpoint to this report."""

    report: int


class Answered(msgspec.Struct, frozen=True, tag=True):
    """Tells rank 0 whether this rank brings a checkpoint to the report, too."""

    report: int
    brings: bool


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Tells rank 0 that this rank makes no more reports."""

    num_reports: int


class Decided(msgspec.Struct, frozen=True, tag=True):
    """Tells all ranks which of them bring a checkpoint to this report."""

    report: int
    ranks: list[int]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Tells all ranks that no checkpoint is stored in this report, and how many reports rank 0 has made."""

    report: int
    num_reports: int


_Message = Asked | Answered | Ended | Decided | Refused


class CheckpointMeeting:
    """A rank's part in the agreement. Reports are counted from 1. Call `arrive` once in each."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rank = channel.rank
        self._news = threading.Condition()
        self._num_reports = 0
        """The number of reports at which this rank has arrived."""
        self._brings = 0
        """The last report to which this rank brings a checkpoint."""
        self._asked: set[int] = set()
        self._decided: dict[int, list[int]] = {}
        self._refused: Refused | None = None
        self._answers: dict[int, dict[int, bool]] = {}
        self._ended: dict[int, int] = {}
        if channel.size > 1:
            channel.listen(_TOPIC, self._hear)

    def arrive(self, *, brings: bool) -> list[int]:
        """Returns the ranks that bring a checkpoint to this report: all, or rank 0 alone.

        Returns an empty list, without waiting, if this rank brings none.

        Raises `UnevenReportsError`, or the `ChannelError` that has ended the group.
        """
        with self._news:
            # Both are set under the lock, since the channel's thread answers from them.
            self._num_reports = report = self._num_reports + 1
            if brings:
                self._brings = report
        if self._rank == 0:
            return self._decide() if brings else self._check_alone()
        if brings:
            self._tell_chief(Answered(report, True))
            return self._await_decision(report)
        if report in self._asked:
            self._tell_chief(Answered(report, False))
        return []

    def leave(self) -> None:
        """Ends this rank's reports. On rank 0, raises `UnevenReportsError` if other ranks wait for another report."""
        if self._rank == 0:
            waiting = {
                rank: report for report, answers in self._answers.items() for rank, yes in answers.items() if yes
            }
            if late := {rank: report for rank, report in waiting.items() if report > self._num_reports}:
                rank, report = next(iter(late.items()))
                raise UnevenReportsError(rank, report, 0, f"has made {self._num_reports} reports")
        elif self._channel.size > 1:
            self._tell_chief(Ended(self._num_reports))

    def _check_alone(self) -> list[int]:
        """Raises `UnevenReportsError` if another rank brings a checkpoint to a report for which rank 0 has none."""
        answers = self._answers.get(self._num_reports)
        if answers and any(answers.values()):
            rank = next(rank for rank, brings in answers.items() if brings)
            self._tell_all(Refused(self._num_reports, self._num_reports))
            raise UnevenReportsError(rank, self._num_reports, 0, "gives none in its own")
        return []

    def _decide(self) -> list[int]:
        """Asks the other ranks and tells them which bring a checkpoint. Only rank 0 calls it, if it brings one."""
        report, others = self._num_reports, range(1, self._channel.size)
        if not others:
            return [0]
        self._tell_all(Asked(report))
        answers = self._answers.setdefault(report, {})
        deadline = time.monotonic() + self._channel.timeout_s
        with self._news:
            while missing := [rank for rank in others if rank not in answers and self._ended.get(rank, 0) < report]:
                for rank in missing:
                    if rank in self._ended:
                        raise UnevenReportsError(0, report, rank, f"has ended after {self._ended[rank]} reports")
                if not self._news.wait(_LOOK_S):
                    self._channel.check()
                    if time.monotonic() > deadline:
                        raise UnevenReportsError(
                            0, report, missing[0], f"has not come to it within {self._channel.timeout_s:g} s"
                        )
        ranks = [0, *(rank for rank in others if answers.get(rank))]
        del self._answers[report]
        if 1 < len(ranks) < self._channel.size:
            absent = next(rank for rank in others if rank not in ranks)
            self._tell_all(Refused(report, report))
            raise UnevenReportsError(ranks[1], report, absent, "gives none in its own")
        self._tell_all(Decided(report, ranks))
        return ranks

    def _await_decision(self, report: int) -> list[int]:
        with self._news:
            while report not in self._decided:
                if self._refused is not None:
                    raise UnevenReportsError(
                        self._rank, report, 0, f"gives none in its own, and has made {self._refused.num_reports}"
                    )
                if not self._news.wait(_LOOK_S):
                    self._channel.check()
                    if not self._channel.has_chief():
                        raise UnevenReportsError(self._rank, report, 0, "has ended before")
            return self._decided.pop(report)

    def _hear(self, rank: int, content: bytes) -> None:
        with self._news:
            match msgspec.msgpack.decode(content, type=_Message):
                case Asked(report) if self._rank != 0:
                    self._asked.add(report)
                    # A rank that brings one has already answered in `arrive`.
                    if self._num_reports >= report and self._brings != report:
                        self._tell_chief(Answered(report, False))
                case Answered(report, brings):
                    self._answers.setdefault(report, {})[rank] = brings
                    if brings and report <= self._num_reports and report != self._brings:
                        self._tell_all(Refused(report, self._num_reports))
                case Ended(num_reports):
                    self._ended[rank] = num_reports
                case Decided(report, ranks):
                    self._decided[report] = ranks
                case Refused() as refused if refused.report == self._brings:
                    self._refused = refused
            self._news.notify_all()

    def _tell_chief(self, message: _Message) -> None:
        self._channel.tell_chief(_TOPIC, msgspec.msgpack.encode(message))

    def _tell_all(self, message: _Message) -> None:
        self._channel.tell_all(_TOPIC, msgspec.msgpack.encode(message))
