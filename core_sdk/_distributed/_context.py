"""The numbers of a trial's ranks, and their collectives."""

from __future__ import annotations

import operator
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from core_sdk._distributed._channel import Channel, SoloChannel
from core_sdk._distributed._topology import host_identity, problems_of_numbers, this_rank
from core_sdk._distributed.joining._options import DEFAULT_NUMBER, JOIN_TIMEOUT_S, TIMEOUT_S, JoinOptions
from core_sdk._ground.environment import MeetingPlace, RankPlace
from core_sdk._ground.pickling import OfOneProcess
from core_sdk.errors import ContradictoryRanksError

if TYPE_CHECKING:
    from core_sdk._distributed.joining._horovod import HorovodModule
    from core_sdk._distributed.joining._rendezvous import Rendezvous

T = TypeVar("T")


class DistributedContext(OfOneProcess):
    """The ranks of a trial; by default, one rank.

    A rank's number counts from 0 over the whole trial, its local rank within its node, its cross rank over the nodes.
    Rank 0 is the chief. The constructor is collective: it blocks until every rank has called it, for at most
    `join_timeout_s`. The collectives block for at most `timeout_s` each. If a rank fails, dies, leaves or makes another
    call, the collective raises an error on all ranks, which names that rank.

    Objects are pickled: send small ones, for coordination. One thread at a time may make calls: if two do at once, a
    `RuntimeError` names them, and the call fails on all ranks.
    """

    def __init__(
        self,
        *,
        rank: int | None = None,
        size: int | None = None,
        local_rank: int | None = None,
        local_size: int | None = None,
        cross_rank: int | None = None,
        cross_size: int | None = None,
        chief_ip: str | None = None,
        pub_port: int = DEFAULT_NUMBER,
        pull_port: int | None = None,
        port_offset: int = 0,
        force_tcp: bool = False,
        rendezvous: str | None = None,
        timeout_s: float = TIMEOUT_S,
        join_timeout_s: float = JOIN_TIMEOUT_S,
    ) -> None:
        """Give all six numbers, or none for a single rank.

        On one node, ranks that one parent process has started find each other by that parent. Ranks of different
        parents find each other by the user, the home, `local_size` and `pub_port`. On one node `pub_port` is only a
        number, which must differ between groups that have all else in common. On several nodes the ranks meet at the
        port `pub_port` of `chief_ip`. `rendezvous` is another meeting place: a directory for the ranks of one node, or
        `tcp://HOST:PORT` of rank 0. To meet over TCP, all ranks need the same `CORE_SDK_CHANNEL_KEY`. `force_tcp` makes
        the ranks of one node use loopback rather than Unix sockets. `pull_port` is ignored.

        Raises `ValueError` or `TypeError` for impossible numbers, and a `JoinError` if the ranks do not come together.
        """
        number = _integer("pub_port", pub_port) + _integer("port_offset", port_offset)
        self._join(
            _checked_place(rank, size, local_rank, local_size, cross_rank, cross_size),
            JoinOptions(chief_ip, number, force_tcp, rendezvous, timeout_s, join_timeout_s),
            None,
        )

    @classmethod
    def from_torch_distributed(
        cls, chief_ip: str | None = None, *, timeout_s: float = TIMEOUT_S, join_timeout_s: float = JOIN_TIMEOUT_S
    ) -> Self:
        """Returns the group of the ranks that torchrun has started; they meet through torchrun's own store.

        If the script or its framework has started the ranks, call `torch.distributed.init_process_group()` before.
        Raises `KeyError` if neither is the case, which a script may take for a training of one rank.
        """
        options = JoinOptions(chief_ip, timeout_s=timeout_s, join_timeout_s=join_timeout_s)
        try:
            place = RankPlace.from_torchrun()
        except KeyError:
            if not has_process_group():
                raise
            from core_sdk._distributed.joining._torch import process_group_ranks  # torch is loaded in this case

            place, meeting = process_group_ranks()
            return cls._made(place, options, lambda: meeting)
        return cls._from_torch(place, options)

    @classmethod
    def from_deepspeed(
        cls, chief_ip: str | None = None, *, timeout_s: float = TIMEOUT_S, join_timeout_s: float = JOIN_TIMEOUT_S
    ) -> Self:
        """Returns the group of the ranks that DeepSpeed's launcher started; call `deepspeed.init_distributed()` first.

        Raises `KeyError` if DeepSpeed's launcher did not start this process.
        """
        place = RankPlace.from_deepspeed()
        return cls._from_torch(place, JoinOptions(chief_ip, timeout_s=timeout_s, join_timeout_s=join_timeout_s))

    @classmethod
    def from_horovod(
        cls,
        hvd: HorovodModule,
        chief_ip: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        join_timeout_s: float = JOIN_TIMEOUT_S,
    ) -> Self:
        """Returns the group of Horovod's ranks, which meet through it: `hvd` is `horovod.torch`, after its `init()`.

        Raises `JoinError` if Horovod is not initialized.
        """
        from core_sdk._distributed.joining._horovod import horovod_place, horovod_rendezvous  # useless without Horovod

        options = JoinOptions(chief_ip, timeout_s=timeout_s, join_timeout_s=join_timeout_s)
        place = horovod_place(hvd)
        return cls._made(place, options, lambda: horovod_rendezvous(hvd))

    @classmethod
    def _from_torch(cls, place: RankPlace, options: JoinOptions) -> Self:
        from core_sdk._distributed.joining._join import torch_rendezvous  # as in `_join`

        return cls._made(place, options, lambda: torch_rendezvous(MeetingPlace.read(), options))

    @classmethod
    def _made(cls, place: RankPlace, options: JoinOptions, rendezvous: Callable[[], Rendezvous | None]) -> Self:
        made = cls.__new__(cls)
        _check_numbers(place)
        made._join(place, options, rendezvous() if place.size > 1 else None)
        return made

    def _join(self, place: RankPlace, options: JoinOptions, rendezvous: Rendezvous | None) -> None:
        self.rank: int = place.rank
        """This rank's number in the trial."""
        self.size: int = place.size
        """The number of ranks of the trial."""
        self.local_rank: int = place.local_rank
        """This rank's number within its node."""
        self.local_size: int = place.local_size
        """The number of ranks of this node."""
        self.cross_rank: int = place.cross_rank
        """The number of this node."""
        self.cross_size: int = place.cross_size
        """The number of nodes."""
        self.channel: Channel
        """The group of all ranks."""
        self.node_channel: Channel
        """The group of this node's ranks."""
        self.hosts: tuple[str, ...]
        """The host of each rank; ranks with equal hosts see the same files."""
        self._join_again: Callable[[], Channel]
        self._background_channel: Channel | None = None
        if place.size == 1:
            self.channel = self.node_channel = SoloChannel()
            self.hosts = (host_identity(),)
            self._join_again = SoloChannel
        else:
            # Slow to import, and not needed by a training of one rank.
            from core_sdk._distributed.joining._join import (
                choose_listen_options,
                choose_rendezvous,
                join_again,
                join_node,
                join_ranks,
            )

            here, meeting = this_rank(place), MeetingPlace.read()
            rendezvous = rendezvous or choose_rendezvous(here, options, meeting)
            listen_options = choose_listen_options(here, options, meeting, rendezvous)
            self.channel = everyone = join_ranks(here, options, rendezvous, listen_options)
            self.hosts = tuple(each.host for each in everyone.ranks)
            try:
                self.node_channel = join_node(here, everyone, options)
            except BaseException as error:
                everyone.close(error)
                raise
            self._join_again = lambda: join_again(here, everyone, options, listen_options)
        self._opened = [self.channel, self.node_channel]
        # Leaves for a script that does not call `close()`: the others would take this rank for dead.
        self._finalizer = weakref.finalize(self, _close_forgotten, self._opened, os.getpid())

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def is_local_chief(self) -> bool:
        """Whether this is local rank 0."""
        return self.local_rank == 0

    def get_rank(self) -> int:
        """Returns `rank`."""
        return self.rank

    def get_local_rank(self) -> int:
        """Returns `local_rank`."""
        return self.local_rank

    def get_size(self) -> int:
        """Returns `size`."""
        return self.size

    def get_num_agents(self) -> int:
        """Returns `cross_size`."""
        return self.cross_size

    def gather(self, stuff: T) -> list[T] | None:
        """Returns all ranks' objects, in rank order, on the chief; None on the others, once it has all. Collective."""
        return self.channel.gather(stuff)

    def gather_local(self, stuff: T) -> list[T] | None:
        """Returns the node's objects, by local rank, on its local chief, else None. Collective within a node."""
        return self.node_channel.gather(stuff)

    def allgather(self, stuff: T) -> list[T]:
        """Returns all ranks' objects, in rank order, on every rank. Collective."""
        return self.channel.allgather(stuff)

    def allgather_local(self, stuff: T) -> list[T]:
        """Returns the node's objects, in local-rank order, on every rank of it. Collective within a node."""
        return self.node_channel.allgather(stuff)

    def broadcast(self, stuff: T) -> T:
        """Returns the chief's object on every rank. Collective; the chief does not wait until it has arrived."""
        return self.channel.broadcast(stuff)

    def broadcast_local(self, stuff: T | None = None) -> T | None:
        """Returns the local chief's object on every rank of the node. Collective within a node."""
        return self.node_channel.broadcast(stuff)

    def background_channel(self) -> Channel:
        """Returns another group of all ranks, for another thread. The first call makes it, and is collective."""
        if self._background_channel is None:
            self._background_channel = self._join_again()
            self._opened.append(self._background_channel)
        return self._background_channel

    def close(self, error: BaseException | None = None) -> None:
        """Leaves all groups; does nothing the second time. Other ranks' calls then fail with `error`."""
        self._finalizer.detach()
        _close(self._opened, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close(exc_val)


def _checked_place(*numbers: int | None) -> RankPlace:
    if all(number is None for number in numbers):
        return RankPlace(0, 1, 0, 1, 0, 1)
    names = RankPlace.__struct_fields__
    pairs = zip(names, numbers, strict=True)
    given = {name: _integer(name, number) for name, number in pairs if number is not None}
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"{', '.join(missing)} must be given too, beside {', '.join(given)}: all six numbers, or none")
    place = RankPlace(**given)
    _check_numbers(place)
    return place


def _integer(name: str, number: int) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{name} is {number!r}; it must be an integer") from None


def has_process_group() -> bool:
    """Returns whether the script has begun torch's process group. Does not load torch."""
    torch_distributed: Any = sys.modules.get("torch.distributed")
    return torch_distributed is not None and torch_distributed.is_available() and torch_distributed.is_initialized()


def _check_numbers(place: RankPlace) -> None:
    if problems := problems_of_numbers(place):
        raise ContradictoryRanksError(problems)


def _close(channels: Sequence[Channel], error: BaseException | None) -> None:
    """Closes the channels, the last one first."""
    for channel in reversed(channels):
        channel.close(error)


def _close_forgotten(channels: Sequence[Channel], process: int) -> None:
    if os.getpid() == process:
        _close(channels, getattr(sys, "last_value", None))
