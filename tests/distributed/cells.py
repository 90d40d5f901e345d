"""Groups of ranks on hosts of their own, for each case of a matrix."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from distributed.ranks import Nursery, Outcome, RankGroup
from hosts.hosts import HostGroup, host_group

RUNS = range(3)
KEY = {"CORE_SDK_CHANNEL_KEY": "a key that every rank was given"}
MEETING = "tcp://h1:4000"
# Long enough to be no reason for anything that these tests see.
PATIENCE_S = 100.0
STANDARD_TERMS: dict[str, Any] = {"rendezvous": MEETING, "timeout_s": PATIENCE_S}
# Half a minute without an answer, and the last question of it.
GIVEN_UP_WITHIN_S = 40.0
A_FEW_PACKETS = 7_000
SMALL = 500 * 70
LARGE = 1_000_000


class Layout(NamedTuple):
    num_hosts: int
    ranks_per_host: int

    @property
    def size(self) -> int:
        return self.num_hosts * self.ranks_per_host

    def ranks_on(self, host: int) -> list[int]:
        return [rank for rank in range(self.size) if rank // self.ranks_per_host == host]

    def __str__(self) -> str:
        return f"{self.num_hosts} hosts of {self.ranks_per_host}"


TWO_BY_TWO = Layout(2, 2)
THREE_BY_ONE = Layout(3, 1)
LAYOUTS = [TWO_BY_TWO, THREE_BY_ONE]


class Cell(NamedTuple):
    """One case of the matrix, in which the culprit is a rank or the index of a host."""

    call: str
    layout: Layout
    culprit: int
    num_bytes: int = SMALL
    host_is_idle: bool = False

    def arguments(self) -> dict[str, object]:
        """Returns the script's arguments."""
        return {
            "call": self.call,
            "size": self.layout.size,
            "ranks_per_host": self.layout.ranks_per_host,
            "culprit": self.culprit,
            "num_bytes": self.num_bytes,
            "idle": self.layout.ranks_on(self.culprit) if self.host_is_idle else [],
        }


class Stage:
    """Runs groups of ranks on hosts of their own."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder

    @contextlib.contextmanager
    def set_up(
        self,
        source: str,
        cell: Cell,
        *,
        latency_s: float = 0.0,
        loss_percent: float = 0.0,
        **keywords: Any,
    ) -> Iterator[tuple[HostGroup, RankGroup]]:
        """Starts hosts and ranks on them."""
        with host_group(cell.layout.num_hosts, latency_s=latency_s) as hosts:
            for host in hosts if loss_percent else ():
                host.lose(loss_percent)
            with self.set_up_on(hosts, source, cell, **keywords) as ranks:
                yield hosts, ranks

    @contextlib.contextmanager
    def set_up_on(
        self,
        hosts: HostGroup,
        source: str,
        cell: Cell,
        *,
        arguments: dict[str, object] | None = None,
        only: Sequence[int] | None = None,
        **terms: Any,
    ) -> Iterator[RankGroup]:
        """Starts ranks on these hosts and ends them with the block."""
        ranks = self._nursery.start(
            self._folder,
            source,
            cell.layout.size,
            arguments=cell.arguments() | (arguments or {}),
            hosts=hosts.hosts,
            ranks=only,
            variables=KEY,
            **(STANDARD_TERMS | terms),
        )
        try:
            yield ranks
        finally:
            self._nursery.end(ranks)


def for_each(cells: Sequence[Cell], check: Callable[[Cell], None], *, at_once: int = 1) -> None:
    """Checks all cells, several at a time, and reports every failure together."""

    def problem(cell: Cell) -> str | None:
        try:
            check(cell)
        except AssertionError as error:
            print(f"\n{cell}: {error}", flush=True)  # the others may take long
            return f"{cell}: {error}"
        return None

    with ThreadPoolExecutor(at_once) as pool:
        problems = [found for found in pool.map(problem, cells) if found]
    assert not problems, "\n\n".join([f"{len(problems)} of {len(cells)} cases", *problems])


def told(outcome: Outcome) -> tuple[str | None, list[int]]:
    """Returns the error of a rank and the ranks that its text names."""
    return outcome.error, [int(number) for number in re.findall(r"\brank (\d+)", outcome.text)]


def sampled(
    argument: str, sample: Sequence[Cell], everything: Sequence[Cell]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives the test a few cells in the case `a sample`, and all of them three times in the others."""
    params = [pytest.param(sample, id="a sample")]
    params += [pytest.param(everything, id=f"all, run {run}") for run in RUNS]
    return pytest.mark.parametrize(argument, params)
