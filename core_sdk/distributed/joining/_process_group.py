"""The ranks as torch's process group knows them, and the rendezvous through it: for scripts that start their ranks."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from core_sdk.distributed._topology import host_identity
from core_sdk.distributed.joining._rendezvous import Address, Rendezvous
from core_sdk.environment import RankPlace


class ProcessGroupRendezvous(Rendezvous):
    """`publish` and the first `look` are one collective call."""

    where = "torch's process group"

    def __init__(self) -> None:
        """Collective."""
        # Of its own, on the CPU: NCCL would want a GPU of each rank.
        self._group = dist.new_group(backend="gloo")
        self._found: Address | None = None

    def place(self) -> RankPlace:
        """Collective. Ranks of one host are a node, in the order of their ranks."""
        rank, size = dist.get_rank(), dist.get_world_size()
        hosts: list[Any] = [None] * size
        dist.all_gather_object(hosts, host_identity(), group=self._group)
        nodes = list(dict.fromkeys(hosts))
        return RankPlace(
            rank=rank,
            size=size,
            local_rank=hosts[:rank].count(hosts[rank]),
            local_size=hosts.count(hosts[rank]),
            cross_rank=nodes.index(hosts[rank]),
            cross_size=len(nodes),
        )

    def publish(self, address: Address) -> None:
        dist.broadcast_object_list([address], src=0, group=self._group)

    def look(self) -> Address | None:
        if self._found is None:
            found: list[Any] = [None]
            dist.broadcast_object_list(found, src=0, group=self._group)
            self._found = found[0]
        return self._found

    def withdraw(self) -> None:
        pass
