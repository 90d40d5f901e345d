"""The ranks as Horovod knows them, and the rendezvous through its `broadcast_object()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from core_sdk._distributed._topology import host_identity
from core_sdk._distributed.joining._rendezvous import BroadcastRendezvous, Rendezvous
from core_sdk._ground.environment import RankPlace
from core_sdk.errors import JoinError

# Without a name Horovod uses the type of the object, which differs between rank 0 and the ranks that wait for it.
# Operations with different names wait for each other forever.
_PLACE = "core_sdk.place"
_ADDRESS = "core_sdk.address"


class HorovodModule(Protocol):
    """The part of the module `horovod.torch` that we use, after its `init()`."""

    def is_initialized(self) -> bool: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def local_rank(self) -> int: ...
    def local_size(self) -> int: ...
    def allgather_object(self, obj: Any, name: str | None = ...) -> list[Any]: ...
    def broadcast_object(self, obj: Any, root_rank: int = ..., name: str | None = ...) -> Any: ...


def horovod_rendezvous(hvd: HorovodModule) -> Rendezvous:
    return BroadcastRendezvous(
        "Horovod's broadcast_object", lambda address: hvd.broadcast_object(address, root_rank=0, name=_ADDRESS)
    )


def horovod_place(hvd: HorovodModule) -> RankPlace:
    """Returns this rank's numbers. Collective.

    Raises `JoinError` if Horovod is not initialized, and `TypeError` for anything but `horovod.torch`.
    """
    if not hasattr(hvd, "broadcast_object") or not hasattr(hvd, "rank"):
        raise TypeError(f"from_horovod() takes the module horovod.torch, after its init(); not {hvd!r}")
    if not hvd.is_initialized():
        raise JoinError(
            "Horovod is not initialized: call hvd.init() first, once per process, and hvd.shutdown() at the end."
        )
    if hvd.size() == 1:
        return RankPlace(0, 1, 0, 1, 0, 1)
    gathered = hvd.allgather_object((hvd.local_rank(), host_identity()), name=_PLACE)
    nodes = nodes_of(gathered)
    return RankPlace(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), nodes[hvd.rank()], 1 + max(nodes))


def nodes_of(ranks: Sequence[tuple[int, str]]) -> list[int]:
    """Returns the node of each rank. `ranks` holds the local rank and the host of each rank, in rank order.

    Horovod's own cross ranks count only the nodes that have the same local rank, so they are not the nodes' numbers if
    nodes have different numbers of ranks. The ranks of different hosts may alternate, as under mpirun. One host may
    also hold several nodes; then the ranks of each node are consecutive.
    """
    nodes: list[int] = []
    newest, newest_on_host = -1, dict[str, int]()
    for local_rank, host in ranks:
        if local_rank == 0:
            newest += 1
            newest_on_host[host] = newest
        nodes.append(newest_on_host.get(host, newest))
    return nodes
