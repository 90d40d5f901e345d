"""The identity of each rank, and the check that the identities of all ranks agree."""

from __future__ import annotations

import os
import platform
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from core_sdk._ground.environment import RankPlace


class RankIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The six numbers of one rank, and the process that it runs in."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str
    """Ranks of the same host see the same files and Unix sockets."""
    host_name: str
    pid: int
    python: str
    rank_of_all: int | None = None
    """The rank among the ranks of all nodes, if `rank` counts within a node."""

    @property
    def known_as(self) -> int:
        """The rank among the ranks of all nodes, by which errors name it in every group."""
        return self.rank if self.rank_of_all is None else self.rank_of_all

    @property
    def process(self) -> str:
        return f"process {self.pid} on {self.host_name}"


def this_rank(place: RankPlace) -> RankIdentity:
    """Returns the identity of this process as the rank with these numbers."""
    return RankIdentity(
        **msgspec.structs.asdict(place),
        host=host_identity(),
        host_name=socket.gethostname(),
        pid=os.getpid(),
        python=platform.python_version(),
    )


def host_identity() -> str:
    """Returns an id that is equal for two processes exactly if they share a kernel and a mount namespace.

    Such processes see the same files.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/mnt').readlink()}"
    except OSError:  # not Linux: no containers share a kernel
        return socket.gethostname()


def problems_of_numbers(place: RankPlace) -> list[str]:
    """Returns descriptions of what is wrong with the numbers of one rank, taken alone."""
    problems = []
    for name, number, size_name, size in (
        ("rank", place.rank, "size", place.size),
        ("local_rank", place.local_rank, "local_size", place.local_size),
        ("cross_rank", place.cross_rank, "cross_size", place.cross_size),
    ):
        if size < 1:
            problems.append(f"{size_name} is {size}; it must be at least 1")
        elif not 0 <= number < size:
            problems.append(f"{name} is {number}; it must be between 0 and {size - 1}, below {size_name}")
    if not problems and place.cross_size == 1 and place.local_size != place.size:
        problems.append(f"size is {place.size} and local_size {place.local_size}; on a single node they are the same")
    if not problems and place.local_size + place.cross_size - 1 > place.size:
        problems.append(
            f"size is {place.size}, too few for {place.cross_size} nodes of which one has {place.local_size} ranks"
        )
    return problems


def problems_among(ranks: Sequence[RankIdentity]) -> list[str]:
    """Returns descriptions of the contradictions among the identities of all ranks."""
    problems = [
        f"there are {count} processes with rank {rank}"
        for rank, count in sorted(Counter(each.rank for each in ranks).items())
        if count > 1
    ]
    for name, values in (
        ("size", {each.size: each.rank for each in ranks}),
        ("cross_size", {each.cross_size: each.rank for each in ranks}),
        ("Python", {each.python.rpartition(".")[0]: each.rank for each in ranks}),
    ):
        if len(values) > 1:
            said = ", ".join(f"{value} on rank {rank}" for value, rank in sorted(values.items()))
            problems.append(f"{name} is {said}")
    return problems or _problems_of_nodes(ranks)


def _problems_of_nodes(ranks: Sequence[RankIdentity]) -> list[str]:
    problems = []
    nodes: dict[int, list[RankIdentity]] = {}
    for each in ranks:
        nodes.setdefault(each.cross_rank, []).append(each)
    if missing := set(range(ranks[0].cross_size)) - nodes.keys():
        problems.append(f"no rank has cross_rank {', '.join(map(str, sorted(missing)))}")
    for cross_rank, node in sorted(nodes.items()):
        local_ranks = sorted(each.local_rank for each in node)
        if local_ranks != list(range(len(node))) or any(each.local_size != len(node) for each in node):
            said = ", ".join(f"rank {p.rank} is {p.local_rank} of {p.local_size}" for p in node)
            problems.append(f"node {cross_rank} has {len(node)} ranks, and there {said}")
    return problems
