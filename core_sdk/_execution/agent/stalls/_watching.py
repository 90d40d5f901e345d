"""Looks at the signs of life of the ranks beside an agent, and tells of ranks that stand still."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from core_sdk._execution.agent.stalls._diagnosis import (
    ProcessState,
    RankState,
    common_state,
    told,
    waits_for_ranks,
)
from core_sdk._execution.agent.stalls._stacks import children_of, native_stacks, process_state
from core_sdk._ground.files import write_atomically
from core_sdk._ground.records import StallFound
from core_sdk._ground.signs import Pulse, RankSigns, StallBounds, collective_calls, read_signs
from core_sdk._home.folders import TrialFolder
from core_sdk._home.streams import size_bytes

logger = logging.getLogger("core_sdk.agent")

_LONGEST_POLL_S = 1.0
# A rank that works is somewhere else at one of the next looks.
_NUM_LOOKS = 6
_LONGEST_PAUSE_S = 0.5
_ANSWER_S = 1.0


class StallWatch(threading.Thread):
    """Watches the ranks of an attempt on this node. `on_stall` is called with what stands, once for each stall."""

    def __init__(
        self, folder: TrialFolder, directory: Path, bounds: StallBounds, on_stall: Callable[[str], None]
    ) -> None:
        super().__init__(name="core-sdk-stalls", daemon=True)
        self._folder = folder
        self._directory = directory
        self._bounds = bounds
        self._on_stall = on_stall
        self._poll_s = min(_LONGEST_POLL_S, bounds.least_s / 10)
        self._pulses: dict[tuple[int, int], Pulse] = {}
        self._journal: tuple[Path, int] | None = None
        self._num_reports = 0
        self._reported_at = 0.0
        self._stalled: dict[int, int] = {}
        """The number of the signs of each rank when the stall was told that goes on; empty if there is none."""
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()

    def run(self) -> None:
        while not self._closing.wait(self._poll_s):
            try:
                self._look()
            except OSError as error:  # a full disk, or a home that is away
                logger.debug("the signs of life cannot be looked at: %s", error)

    def _look(self) -> None:
        ranks = [each for each in self._signs() if not each.has_ended]
        now = time.monotonic()
        for each in ranks:
            pulse = self._pulses.setdefault((each.rank, each.pid), Pulse(self._bounds))
            pulse.see(now, each.count, each.at, each.busy_since)
        if self._stalled:
            if any(each.count > self._stalled.get(each.rank, each.count) for each in ranks) or not ranks:
                self._stalled = {}
                self._record("", is_over=True)
            return
        silent = [each for each in ranks if self._pulse(each).silent_s(now) is not None]
        if silent and (standing := self._standing(silent)):
            working = len(ranks) > len(standing)
            if all(waits_for_ranks(state) for state in standing.values()) and working:
                return  # for ranks that are at work
            self._tell(ranks, standing)

    def _signs(self) -> list[RankSigns]:
        """Returns the signs of all ranks. Each record of the chief is one, too, unless a thread has sampled it."""
        path = self._folder.journal_path(max(self._folder.attempts()))
        seen = path, size_bytes(path) or 0
        if seen != self._journal and not self._has_only_figures(*seen):
            self._num_reports, self._reported_at = self._num_reports + 1, time.monotonic()
        self._journal = seen
        return [
            each
            if each.rank
            else replace(each, count=each.count + self._num_reports, at=max(each.at, self._reported_at))
            for each in read_signs(self._directory)
        ]

    def _has_only_figures(self, path: Path, size: int) -> bool:
        if self._journal is None or self._journal[0] != path or size <= self._journal[1]:
            return False
        with path.open("rb") as file:
            file.seek(self._journal[1])
            return all(b'"type":"profile"' in line for line in file.read(size - self._journal[1]).splitlines())

    def _pulse(self, each: RankSigns) -> Pulse:
        return self._pulses[each.rank, each.pid]

    def _standing(self, silent: Sequence[RankSigns]) -> dict[int, ProcessState]:
        """Looks several times, and returns where those ranks stand that have not moved meanwhile, or loop."""
        looks = {each.rank: [process_state(each.pid, each.stacks)[0]] for each in silent}
        for _ in range(_NUM_LOOKS - 1):
            if self._closing.wait(min(_LONGEST_PAUSE_S, self._poll_s)):
                return {}
            for each in (each for each in silent if each.rank in looks):
                looks[each.rank].append(process_state(each.pid, each.stacks)[0])
                has_moved = looks[each.rank][-1] != looks[each.rank][0]
                if has_moved and not self._pulse(each).is_overdue(time.monotonic()):
                    del looks[each.rank]
                    self._pulse(each).excuse(time.monotonic())
        newest = {each.rank: each.count for each in self._signs()}
        standing = {}
        for each in (each for each in silent if each.rank in looks and newest.get(each.rank) == each.count):
            if (state := common_state(looks[each.rank])) is not None:
                standing[each.rank] = state
            else:
                self._pulse(each).excuse(time.monotonic())
        return standing

    def _tell(self, ranks: Sequence[RankSigns], standing: dict[int, ProcessState]) -> None:
        attempt, now = max(self._folder.attempts()), time.monotonic()
        states, texts = [], []
        all_calls = collective_calls([each.stacks for each in ranks], _ANSWER_S)
        for each, calls in zip(ranks, all_calls, strict=True):
            state, text = process_state(each.pid, each.stacks)
            if (found := standing.get(each.rank)) is not None and found.loops:
                state = found
            workers = [(pid, *process_state(pid, each.stacks)) for pid in children_of(each.pid)]
            forked = [worker for _, worker, _ in workers]
            states.append(RankState(each.rank, state, now - each.at, each.count, forked, calls))
            texts.append(f"rank {each.rank}, pid {each.pid}, {now - each.at:.1f} s after its last sign of life\n")
            texts += [f"  {group}: collective call {call.number}, {call.name}\n" for group, call in calls.items()]
            texts.append(native_stacks(each.pid) or text or f"  {state.state}\n")
            for pid, worker, worker_text in workers:
                texts.append(f"\nwhat rank {each.rank} has forked, pid {pid}\n{worker_text or f'  {worker.state}'}\n")
            texts.append("\n")
        words = told(states)
        self._stalled = {each.rank: each.count for each in ranks}
        with contextlib.suppress(OSError):
            write_atomically(self._folder.stall_path(attempt), f"{words}\n\n{''.join(texts)}".encode())
        self._record(words)
        self._on_stall(words)

    def _record(self, words: str, *, is_over: bool = False) -> None:
        attempt = max(self._folder.attempts())
        self._folder.append_change(StallFound(time=time.time(), attempt=attempt, words=words, is_over=is_over))
