"""The ranks as torch's process group knows them, and the rendezvous through it: for scripts that start their ranks."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from core_sdk.distributed._topology import host_identity
from core_sdk.distributed.joining._rendezvous import Address, BroadcastRendezvous, Rendezvous
from core_sdk.environment import RankPlace


def process_group_ranks() -> tuple[RankPlace, Rendezvous]:
    """This rank, and the rendezvous. Collective. Ranks of one host are a node, in the order of their ranks."""
    # A group of its own on the CPU: NCCL would need a GPU for each rank.
    group = dist.new_group(backend="gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    hosts: list[Any] = [None] * size
    dist.all_gather_object(hosts, host_identity(), group=group)
    nodes = list(dict.fromkeys(hosts))

    def broadcast(address: Address | None) -> Address:
        objects: list[Any] = [address]
        dist.broadcast_object_list(objects, src=0, group=group)
        return objects[0]  # type: ignore[no-any-return]

    place = RankPlace(
        rank=rank,
        size=size,
        local_rank=hosts[:rank].count(hosts[rank]),
        local_size=hosts.count(hosts[rank]),
        cross_rank=nodes.index(hosts[rank]),
        cross_size=len(nodes),
    )
    return place, BroadcastRendezvous("torch's process group", broadcast)
