"""Ranks of one group: processes that run a script, or, where none of them is harmed, threads that call a function."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from hosts.hosts import Host
from processes import TIMEOUT_S, wait_for

from core_sdk.core import DistributedContext

T = TypeVar("T")


def place(rank: int, size: int, num_nodes: int = 1) -> dict[str, Any]:
    """Returns the six numbers of a rank among nodes of equal size."""
    per_node = size // num_nodes
    return {
        "rank": rank,
        "size": size,
        "local_rank": rank % per_node,
        "local_size": per_node,
        "cross_rank": rank // per_node,
        "cross_size": num_nodes,
    }


@dataclass
class Outcomes(Generic[T]):
    """The values that ranks returned and the errors that they raised."""

    values: dict[int, T] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)

    def by_rank(self) -> list[T]:
        """Returns the values in rank order, or raises the first error."""
        for error in self.errors.values():
            raise error
        return [self.values[rank] for rank in sorted(self.values)]


class Threads:
    """Runs groups whose ranks are threads of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def terms(self, **changes: Any) -> dict[str, Any]:
        """Returns the options of a new group."""
        return {
            "rendezvous": str(self._folder / uuid.uuid4().hex),
            "timeout_s": TIMEOUT_S,
            "join_timeout_s": TIMEOUT_S,
        } | changes

    def run(
        self, size: int, script: Callable[[DistributedContext], T], *, num_nodes: int = 1, **changes: Any
    ) -> list[T]:
        """Runs the script on each rank and returns what they returned."""
        return self.try_to_run(size, script, num_nodes=num_nodes, **changes).by_rank()

    def try_to_run(
        self, size: int, script: Callable[[DistributedContext], T], *, num_nodes: int = 1, **changes: Any
    ) -> Outcomes[T]:
        terms = self.terms(**changes)

        def join_and_run(rank: int) -> T:
            with DistributedContext(**place(rank, size, num_nodes), **terms) as distributed:
                return script(distributed)

        return together(size, join_and_run)


def together(size: int, run_rank: Callable[[int], T]) -> Outcomes[T]:
    """Runs a function for every rank in a thread of its own and fails if one hangs."""
    outcomes: Outcomes[T] = Outcomes()

    def run(rank: int) -> None:
        try:
            outcomes.values[rank] = run_rank(rank)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcomes.errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return outcomes


@dataclass(frozen=True)
class Outcome:
    """The values, error and exit status of one rank's script."""

    values: Sequence[Any]
    """What it told."""
    error: str | None
    """The class of what it raised."""
    text: str
    """Of what it raised."""
    ended_at: float
    """On the monotonic clock: when it raised, or told its last."""
    status: int
    """A signal's number is negative."""
    stderr: str


class RankProcess:
    """A rank in a process of its own."""

    def __init__(self, rank: int, pid: int, folder: Path, reap: Callable[[int], int]) -> None:
        self.rank = rank
        self.pid = pid
        self._folder = folder
        self._reap = reap
        self._status: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> float:
        """Sends a signal and returns the time."""
        os.kill(self.pid, number)
        return time.monotonic()

    def kill(self) -> float:
        """Kills the process and returns the time of its death."""
        self.send(signal.SIGKILL)
        assert self._await_end(TIMEOUT_S)
        return time.monotonic()

    def send_when_waiting(self) -> None:
        """Sends SIGUSR1 when the script sleeps, as it does while it waits for other ranks."""
        wait_for(lambda: self._state() == "S")
        self.send(signal.SIGUSR1)

    def stop(self) -> float:
        """Stops the process with SIGSTOP and returns the time when it stands still."""
        self.send(signal.SIGSTOP)
        wait_for(lambda: self._state() == "T")
        return time.monotonic()

    def _state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def has_ended(self) -> bool:
        return self._await_end(0.0)

    def told(self) -> list[Any]:
        """Returns the values that the rank has told so far."""
        return [line["value"] for line in self._lines() if "value" in line]

    def time_of(self, value: object) -> float:
        """Returns the monotonic time at which the rank told this value."""
        return next(float(line["at"]) for line in self._lines() if line.get("value") == value)

    def outcome(self) -> Outcome:
        """Waits for the rank's end and returns its outcome."""
        assert self._await_end(TIMEOUT_S), f"rank {self.rank} hangs: {self._lines()}, {self._stderr()}"
        lines = self._lines()
        error = next((line for line in lines if "error" in line), {})
        return Outcome(
            values=[line["value"] for line in lines if "value" in line],
            error=error.get("error"),
            text=error.get("text", ""),
            ended_at=lines[-1]["at"] if lines else 0.0,
            status=self._reaped(),
            stderr=self._stderr(),
        )

    def end(self) -> None:
        if self._status is None:
            if not self._await_end(0.0):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self._await_end(TIMEOUT_S)
            self._reaped()
        os.close(self._descriptor)

    def _reaped(self) -> int:
        if self._status is None:
            self._status = self._reap(self.pid)
        return self._status

    def _await_end(self, timeout_s: float) -> bool:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))

    def _lines(self) -> list[dict[str, Any]]:
        path = self._folder / f"outcome.{self.rank}"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _stderr(self) -> str:
        path = self._folder / f"stderr.{self.rank}"
        return path.read_text(errors="replace") if path.exists() else ""


class RankGroup:
    """Ranks that run the same script, in processes of their own."""

    def __init__(self, folder: Path, ranks: Sequence[RankProcess]) -> None:
        self._folder = folder
        self.ranks = ranks
        self.meeting = str(folder / "meeting")
        """Where they meet, unless the test has said otherwise."""

    def __getitem__(self, rank: int) -> RankProcess:
        return next(each for each in self.ranks if each.rank == rank)

    def mark(self, name: str) -> None:
        """Sets a mark for which scripts can wait with `await_mark`."""
        (self._folder / name).touch()

    def await_mark(self, name: str) -> None:
        """Waits for a mark that a script sets with `mark`."""
        wait_for((self._folder / name).exists)

    def await_marks(self, name: str) -> None:
        """Waits until every rank has set its mark `rank N NAME`, and fails if one ends before."""
        self.await_all([f"rank {rank.rank} {name}" for rank in self.ranks])

    def await_all(self, names: Sequence[str]) -> None:
        """Waits for all these marks, and fails if a rank ends before."""
        marks = [self._folder / name for name in names]

        def is_decided() -> bool:
            return all(mark.exists() for mark in marks) or any(rank.has_ended() for rank in self.ranks)

        wait_for(is_decided, 2 * TIMEOUT_S)
        ended = {rank.rank: rank.outcome() for rank in self.ranks if rank.has_ended()}
        assert all(mark.exists() for mark in marks), f"some have ended before all had said {names[-1]!r}: {ended}"

    def outcomes(self, *, without: Sequence[int] = ()) -> dict[int, Outcome]:
        """Waits for the ranks, except some, and returns their outcomes."""
        return {rank.rank: rank.outcome() for rank in self.ranks if rank.rank not in without}


class Nursery:
    """Starts ranks and ends them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm_ranks.py"))],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._asking = threading.Lock()
        self._started: list[RankProcess] = []

    def start(
        self,
        folder: Path,
        source: str,
        size: int = 3,
        *,
        arguments: dict[str, Any] | None = None,
        num_nodes: int = 1,
        ranks: Sequence[int] | None = None,
        variables: dict[str, str] | None = None,
        hosts: Sequence[Host] = (),
        **terms: Any,
    ) -> RankGroup:
        """Runs the script on all ranks, or on some of them; each host is a node."""
        num_nodes = len(hosts) or num_nodes
        group = folder / uuid.uuid4().hex
        group.mkdir()
        script = group / "script.py"
        script.write_text(textwrap.dedent(source))
        shared = {"rendezvous": str(group / "meeting"), "timeout_s": TIMEOUT_S, "join_timeout_s": TIMEOUT_S} | terms
        started = []
        for rank in range(size) if ranks is None else ranks:
            request = {
                "script": str(script),
                "folder": str(group),
                "rank": str(rank),
                "arguments": json.dumps(arguments or {}),
                "terms": json.dumps(place(rank, size, num_nodes) | shared),
                "host": hosts[rank * num_nodes // size].pid if hosts else None,
                "variables": json.dumps(dict(os.environ) | (variables or {})),
            }
            started.append(
                RankProcess(rank, self._ask({"start": request}), group, lambda pid: self._ask({"reap": pid}))
            )
        self._started += started
        return RankGroup(group, started)

    def end(self, group: RankGroup) -> None:
        """Kills those ranks of the group that still run."""
        for rank in group.ranks:
            rank.end()
            self._started.remove(rank)

    def end_all(self) -> None:
        """Kills all ranks that still run."""
        for rank in self._started:
            rank.end()
        self._started.clear()

    def close(self) -> None:
        self.end_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._asking:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())
