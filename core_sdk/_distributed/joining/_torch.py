"""The rendezvous through torch: its store, which torchrun's agent runs at MASTER_ADDR, or its process group."""

from __future__ import annotations

import datetime
import logging
import threading
from typing import Any

import msgspec
import torch.distributed as dist
from torch.distributed import DistNetworkError, DistStoreError, TCPStore  # type: ignore[attr-defined]

from core_sdk._distributed._topology import host_identity
from core_sdk._distributed.joining._rendezvous import BroadcastRendezvous, ChiefAddress, Rendezvous
from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.environment import RankPlace
from core_sdk.errors import ContradictoryRanksError, JoinError

logger = logging.getLogger("core_sdk.distributed")

_LONGEST_S = 1e6
# If there is no process group, the script may wait for a store that no process starts.
_TELL_AFTER_S = 10.0


class TorchStoreRendezvous(Rendezvous):
    """A rendezvous through a store of torch.

    Anybody who can connect to the store can read the key. They can also disturb torch's own groups.
    """

    def __init__(self, host: str, port: int, prefix: str, timeout_s: float) -> None:
        """Blocks until the store answers. Raises `JoinError` if it does not answer in time."""
        self.where = f"the store of torch.distributed at {host}:{port}"
        self._key = f"core_sdk/{prefix}/chief"
        self._is_published = False
        timeout = datetime.timedelta(seconds=min(timeout_s, _LONGEST_S))
        waiting = threading.Timer(_TELL_AFTER_S, logger.warning, ("still waiting for an answer of %s", self.where))
        waiting.daemon = True
        waiting.start()
        try:
            self._store = TCPStore(host, port, is_master=False, timeout=timeout, wait_for_workers=False)
        except DistNetworkError as error:
            raise JoinError(
                f"{self.where} does not answer ({str(error).splitlines()[0]}). Start the script with torchrun or "
                "`python -m launch.torch_distributed`, or call torch.distributed.init_process_group() first."
            ) from error
        finally:
            waiting.cancel()

    def publish(self, address: ChiefAddress) -> None:
        content = msgspec.json.encode(address).decode()
        if self._store.compare_set(self._key, "", content) != content.encode():
            raise ContradictoryRanksError([f"another rank 0 is waiting for its ranks in {self.where}"])
        self._is_published = True

    def look(self) -> ChiefAddress | None:
        if not self._store.check([self._key]):
            return None
        try:
            return json_decoder(ChiefAddress)(self._store.get(self._key))
        except DistStoreError:  # withdrawn meanwhile
            return None

    def withdraw(self) -> None:
        if self._is_published:
            self._store.delete_key(self._key)


def process_group_ranks() -> tuple[RankPlace, Rendezvous]:
    """Returns this rank's numbers, and a rendezvous through torch's process group. Collective.

    The ranks of one host form a node; their local ranks are in rank order.
    """
    # A separate group on the CPU, since NCCL would need a GPU for each rank.
    group = dist.new_group(backend="gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    hosts: list[Any] = [None] * size
    dist.all_gather_object(hosts, host_identity(), group=group)
    nodes = list(dict.fromkeys(hosts))

    def broadcast(address: ChiefAddress | None) -> ChiefAddress:
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
