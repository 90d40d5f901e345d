"""Who is who among the ranks of a trial, and their collectives."""

from __future__ import annotations

import dataclasses
from typing import Self, TypeVar

from core_sdk.distributed._channel import Channel, SoloChannel
from core_sdk.environment import RankPlace

T = TypeVar("T")


class DistributedContext:
    """The ranks of a trial. The default is a trial of one rank.

    Ranks count from 0 over the whole trial, local ranks within a node, cross ranks over the nodes. Rank 0 is the chief.
    `chief_ip` is where ranks on other nodes find the chief. Raises `ValueError` for several ranks, which this version
    does not have.
    """

    def __init__(
        self,
        *,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        local_size: int = 1,
        cross_rank: int = 0,
        cross_size: int = 1,
        chief_ip: str | None = None,
    ) -> None:
        if (rank, size, local_rank, local_size, cross_rank, cross_size) != (0, 1, 0, 1, 0, 1):
            raise ValueError(
                f"rank {rank} of {size} (local {local_rank} of {local_size}, node {cross_rank} of {cross_size}): "
                "this version trains on one rank only; start the script as one process"
            )
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.local_size = local_size
        self.cross_rank = cross_rank
        self.cross_size = cross_size
        self._all: Channel = SoloChannel()
        self._node: Channel = SoloChannel()

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> Self:
        """The ranks as torchrun has told them to this process.

        Raises `KeyError` where no torchrun started it, which a script may take for a training of one rank.
        """
        return cls(**dataclasses.asdict(RankPlace.from_torchrun()), chief_ip=chief_ip)

    @property
    def is_chief(self) -> bool:
        return self.rank == 0

    @property
    def is_local_chief(self) -> bool:
        return self.local_rank == 0

    def get_rank(self) -> int:
        return self.rank

    def get_local_rank(self) -> int:
        return self.local_rank

    def get_size(self) -> int:
        return self.size

    def get_num_agents(self) -> int:
        """The number of nodes."""
        return self.cross_size

    def gather(self, stuff: T) -> list[T] | None:
        """Collective. All ranks' objects, in rank order, on the chief; None on the others."""
        return self._all.gather(stuff)

    def gather_local(self, stuff: T) -> list[T] | None:
        """Collective within a node. The node's objects, in local-rank order, on its local chief; None on the others."""
        return self._node.gather(stuff)

    def allgather(self, stuff: T) -> list[T]:
        """Collective. All ranks' objects, in rank order, on every rank."""
        return self._all.allgather(stuff)

    def allgather_local(self, stuff: T) -> list[T]:
        """Collective within a node. The node's objects, in local-rank order, on every rank of it."""
        return self._node.allgather(stuff)

    def broadcast(self, stuff: T) -> T:
        """Collective. The chief's object on every rank."""
        return self._all.broadcast(stuff)

    def broadcast_local(self, stuff: T | None = None) -> T | None:
        """Collective within a node. The local chief's object on every rank of it."""
        return self._node.broadcast(stuff)

    def close(self) -> None:
        """Leaves both groups; does nothing the second time."""
        self._node.close()
        self._all.close()
