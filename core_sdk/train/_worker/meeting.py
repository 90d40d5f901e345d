"""Agrees on the ranks that bring a checkpoint to a report.

A collective in each report would be plainer. But rank 0 may bring a checkpoint alone, and the others cannot know that:
all ranks would wait for the slowest one in every report, which would take 130 us with two ranks and 320 us with four
instead of 7 us. So only ranks that bring a checkpoint wait, until rank 0 has decided. It asks the other ranks how far
they are, and the channel's thread answers for a rank whose function is already beyond that report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import msgspec

from core_sdk._distributed import Channel
from core_sdk._ground.decoding import msgpack_decoder

_TOPIC = "report"
_LOOK_S = 0.2


class Asked(msgspec.Struct, frozen=True, tag=True):
    """Asks all ranks how far they are, now and when they come to this report."""

    report: int


class Standing(msgspec.Struct, frozen=True, tag=True):
    """Tells rank 0 how far a rank is. Reports are counted from 1."""

    num_reports: int = 0
    brings: int = 0
    """The last report to which the rank brings a checkpoint."""
    has_ended: bool = False


class Decided(msgspec.Struct, frozen=True, tag=True):
    """Tells all ranks whether the checkpoint of this report is of all ranks or of rank 0 alone."""

    report: int
    is_shared: bool = False
    uneven: tuple[int, int, str] | None = None
    """A rank that brings one, a rank that does not, and what that rank has done; None if the checkpoint is stored."""


class CheckpointMeeting:
    """A rank's part in the agreement. Call `arrive` once in each report."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rank = channel.rank
        self._news = threading.Condition()
        self._standings = [Standing()] * channel.size
        """The standing of each rank. A rank other than 0 knows only its own."""
        self._asked = 0
        """The last report about which this rank was asked; on rank 0, to which another rank brings a checkpoint."""
        self._decided = Decided(0)
        """The last decision. A rank other than 0 heeds only those that it waits for."""
        channel.listen(_TOPIC, self._hear)

    def arrive(self, *, brings: bool) -> bool:
        """Returns whether all ranks bring a checkpoint to this report. Does not wait if this rank brings none.

        Raises `ValueError`, or the `ChannelError` that has ended the group.
        """
        before = self._standings[self._rank]
        report = before.num_reports + 1
        self._go_on(Standing(report, report if brings else before.brings))
        if brings:
            if self._rank == 0:
                self._tell_all(Asked(report))
            self._await_decision(report)
        return self._is_shared(report)

    def leave(self) -> None:
        """Ends this rank's reports. On rank 0, raises `ValueError` if other ranks wait for another report."""
        last = self._standings[self._rank]
        self._go_on(Standing(last.num_reports, last.brings, has_ended=True))
        self._is_shared(last.num_reports + 1)

    def _go_on(self, standing: Standing) -> None:
        # Under the lock, since the channel's thread answers from it.
        with self._news:
            self._standings[self._rank] = standing
            is_waited_for = standing.num_reports <= self._asked
            if is_waited_for or standing.num_reports == standing.brings or standing.has_ended:
                self._tell_standing()

    def _await_decision(self, report: int) -> None:
        deadline = time.monotonic() + self._channel.timeout_s
        with self._news:
            while self._decided.report < report:
                if not self._news.wait(_LOOK_S):
                    self._channel.check()
                    if not self._channel.has_chief():
                        raise _uneven(self._rank, report, 0, "has ended before")
                    if self._rank == 0 and time.monotonic() > deadline:
                        late = next(rank for rank, each in enumerate(self._standings) if each.num_reports < report)
                        words = f"has not come to it within {self._channel.timeout_s:g} s"
                        self._conclude(Decided(report, uneven=(0, late, words)))

    def _is_shared(self, report: int) -> bool:
        """Raises `ValueError` if this report or a later one was refused."""
        decided = self._decided
        if decided.report < report:
            return False
        if decided.uneven is not None:
            rank, other_rank, problem = decided.uneven
            raise _uneven(rank, decided.report, other_rank, problem)
        return decided.is_shared

    def _hear(self, rank: int, content: bytes) -> None:
        with self._news:
            match msgpack_decoder(Asked | Standing | Decided)(content):
                case Asked(report) if self._rank != 0:
                    self._asked = report
                    self._tell_standing()
                case Standing() as standing:
                    self._standings[rank] = standing
                    self._asked = max(self._asked, standing.brings)
                    self._tell_standing()
                case Decided(report) as decided if self._rank != 0 and report == self._standings[self._rank].brings:
                    self._decided = decided
                    self._news.notify_all()

    def _tell_standing(self) -> None:
        """Tells rank 0 how far this rank is. On rank 0, decides if it knows enough."""
        if self._rank != 0:
            own = self._standings[self._rank]
            self._channel.tell_chief(_TOPIC, msgspec.msgpack.encode(own))
        elif decided := decide(self._standings, self._decided.report):
            self._conclude(decided)

    def _conclude(self, decided: Decided) -> None:
        self._decided = decided
        self._news.notify_all()
        self._tell_all(decided)

    def _tell_all(self, message: Asked | Decided) -> None:
        self._channel.tell_all(_TOPIC, msgspec.msgpack.encode(message))


def decide(standings: Sequence[Standing], last_decided: int) -> Decided | None:
    """Returns the decision about the next report to which a rank brings a checkpoint, or None while it is open. Pure.

    `standings` has all ranks, as far as they are known.
    """
    report = min((each.brings for each in standings if each.brings > last_decided), default=None)
    if report is None:
        return None
    bringing = [rank for rank, each in enumerate(standings) if each.brings == report]
    beyond = [rank for rank, each in enumerate(standings) if each.num_reports >= report and each.brings != report]
    for rank, each in enumerate(standings):
        if each.has_ended and each.num_reports < report:
            return Decided(report, uneven=(bringing[0], rank, f"has ended after {each.num_reports} reports"))
    if 0 in beyond:
        return Decided(report, uneven=(bringing[0], 0, "gives none in its own"))
    if len(bringing) + len(beyond) < len(standings):
        return None
    if beyond and len(bringing) > 1:
        return Decided(report, uneven=(bringing[1], beyond[0], "gives none in its own"))
    return Decided(report, is_shared=len(bringing) > 1)


def _uneven(rank: int, report: int, other_rank: int, problem: str) -> ValueError:
    return ValueError(
        f"rank {rank} gives a checkpoint in its report {report}, and rank {other_rank} {problem}. Let all ranks call "
        "report() equally often, and either all ranks or rank 0 alone give a checkpoint"
    )
