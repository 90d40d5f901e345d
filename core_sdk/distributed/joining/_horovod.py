"""The ranks as Horovod knows them, and the rendezvous through it, which can carry an object to all from the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from core_sdk.distributed._topology import host_identity
from core_sdk.distributed.joining._rendezvous import Address, Rendezvous
from core_sdk.environment import RankPlace
from core_sdk.errors import HorovodNotInitializedError

# Left to itself Horovod takes the name from the object's type, which is not the same on rank 0 as on those that wait
# for its object; and operations of different names wait for each other for ever.
_PLACE = "core_sdk.place"
_ADDRESS = "core_sdk.address"


class Horovod(Protocol):
    """As much as we need of the module `horovod.torch`, after its `init()`."""

    def is_initialized(self) -> bool: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def local_rank(self) -> int: ...
    def local_size(self) -> int: ...
    def allgather_object(self, obj: Any, name: str | None = ...) -> list[Any]: ...
    def broadcast_object(self, obj: Any, root_rank: int = ..., name: str | None = ...) -> Any: ...


class HorovodRendezvous(Rendezvous):
    """`publish` and the first `look` are one collective call of Horovod."""

    where = "Horovod's broadcast_object"

    def __init__(self, hvd: Horovod) -> None:
        self._hvd = hvd
        self._found: Address | None = None

    def publish(self, address: Address) -> None:
        self._hvd.broadcast_object(address, root_rank=0, name=_ADDRESS)

    def look(self) -> Address:
        if self._found is None:
            self._found = self._hvd.broadcast_object(None, root_rank=0, name=_ADDRESS)
        return self._found

    def withdraw(self) -> None:
        pass


def horovod_place(hvd: Horovod) -> RankPlace:
    """Collective. Raises `HorovodNotInitializedError`, and `TypeError` for what is no `horovod.torch`."""
    if not hasattr(hvd, "broadcast_object") or not hasattr(hvd, "rank"):
        raise TypeError(f"from_horovod() takes the module horovod.torch, after its init(); not {hvd!r}")
    if not hvd.is_initialized():
        raise HorovodNotInitializedError
    if hvd.size() == 1:
        return RankPlace(0, 1, 0, 1, 0, 1)
    gathered = hvd.allgather_object((hvd.local_rank(), host_identity()), name=_PLACE)
    nodes = nodes_of(gathered)
    return RankPlace(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), nodes[hvd.rank()], 1 + max(nodes))


def nodes_of(ranks: Sequence[tuple[int, str]]) -> list[int]:
    """Each rank's node, from the local rank and the host of each, in rank order.

    Horovod's own cross ranks count the nodes that have an equal local rank: fewer, where nodes differ in their numbers
    of ranks. One host may be several nodes, of which each then has its ranks in a row; on different hosts the ranks may
    alternate, as under mpirun.
    """
    nodes: list[int] = []
    newest, newest_on_host = -1, dict[str, int]()
    for local_rank, host in ranks:
        if local_rank == 0:
            newest += 1
            newest_on_host[host] = newest
        nodes.append(newest_on_host.get(host, newest))
    return nodes
