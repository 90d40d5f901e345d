"""Brings the nodes together before each start of the ranks, and keeps the store in which those ranks meet.

A node that trains alone has nobody to meet. Several nodes meet by torch's rendezvous, so that all its backends work and
nodes may come and go. A prototype with an elastic rendezvous of our own on torch's `TCPStore` needed a protocol for
joining, leaving, closing and expiring nodes, which is more code than everything in this package; torch documents its
handlers, and they need six calls here. Starting and watching the ranks is the part that torch does not document, and
the part in which we differ. So that is ours, and torch need not be imported before the ranks of a single node start.
"""

from __future__ import annotations

import json
import socket
import subprocess
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any

from core_sdk._ground.environment import unshared_store
from core_sdk._machine.processes import start_helper
from launch._command_line import UsageError
from launch._framework import Start
from launch._network import LOOPBACK, enable_keepalive
from launch._torchrun import _store_process
from launch._torchrun._config import LaunchConfig, RendezvousConfig

# For a node that looks up the address of the ranks' store, which the first node sets at once.
_STORE_TIMEOUT = timedelta(seconds=60)


class TrainingOver(Exception):
    """The training has ended without this node."""


class Meeting(ABC):
    is_fixed: bool
    """Whether no node can come or go between two starts."""
    place: str
    """The place where the nodes meet, for messages."""

    @abstractmethod
    def meet(self) -> Start:
        """Blocks until all nodes are there for the next start. Raises `TrainingOver` and the `errors_of_meeting`."""

    @abstractmethod
    def num_waiting(self) -> int:
        """Returns the number of nodes that wait to take part in the next start. Raises as `meet` does."""

    @abstractmethod
    def is_place_there(self) -> bool:
        """Returns whether the nodes can meet again."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the meeting, so that other nodes do not wait for this one."""


def meeting_of(config: LaunchConfig) -> Meeting:
    """Returns how the nodes of this training meet. Imports torch if they are several. Raises `UsageError`."""
    return Alone(config) if config.rendezvous is None else Together(config, config.rendezvous)


def errors_of_meeting(config: LaunchConfig) -> tuple[type[Exception], ...]:
    """Returns the errors by which torch says that nodes do not meet, or that their store is gone."""
    if config.rendezvous is None:
        return ()
    from torch.distributed import DistError
    from torch.distributed.elastic.rendezvous import RendezvousError

    return RendezvousError, DistError


class Alone(Meeting):
    """A node that trains alone.

    The ranks' store listens before the ranks start, and answers when torch has been imported, which takes them as long.
    It has a process of its own, since a launcher that imports torch would notice no death of a rank meanwhile.
    """

    is_fixed = True
    place = "this node"

    def __init__(self, config: LaunchConfig) -> None:
        self._given_address = config.local_address
        self._port = config.port
        self._server: subprocess.Popen[bytes] | None = None

    def meet(self) -> Start:
        if self._server is not None:
            # The store of the last start: ranks would find their predecessors' addresses in it.
            self._server.kill()
            self._server.wait()
        try:
            # Only where the user has given an address may others connect, as torchrun's ranks may.
            if self._given_address is None:
                listener = socket.create_server((LOOPBACK, self._port))
            else:
                is_dual = socket.has_dualstack_ipv6()
                family = socket.AF_INET6 if is_dual else socket.AF_INET
                listener = socket.create_server(("", self._port), family=family, dualstack_ipv6=is_dual)
        except OSError as error:
            raise UsageError(f"port {self._port}, where the ranks are to meet: {error.strerror}") from error
        with listener:
            self._server = _start_store(listener)
            return Start(0, 1, self._given_address or LOOPBACK, listener.getsockname()[1], store=None)

    def num_waiting(self) -> int:
        return 0

    def is_place_there(self) -> bool:
        return True

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()


class Together(Meeting):
    """Several nodes, which meet by one of torch's rendezvous handlers."""

    def __init__(self, config: LaunchConfig, rendezvous: RendezvousConfig) -> None:
        from torch.distributed.elastic.rendezvous import RendezvousParameters
        from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

        self.is_fixed = rendezvous.is_static
        self.place = rendezvous.endpoint or "their rendezvous"
        parameters = RendezvousParameters(
            backend=rendezvous.backend,
            endpoint=rendezvous.endpoint,
            run_id=config.run_id,
            min_nodes=config.min_nodes,
            max_nodes=config.max_nodes,
            local_addr=config.local_address,
            **rendezvous.settings,
        )
        try:
            self._handler = get_rendezvous_handler(parameters)
        except ValueError as error:
            raise UsageError(f"torch refuses the rendezvous: {error}") from error
        self._num_starts = 0
        self._last: Any = None
        self._ranks_store: object = None

    def meet(self) -> Start:
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]
        from torch.distributed.elastic.rendezvous import RendezvousGracefulExitError

        try:
            with unshared_store():
                found = self._handler.next_rendezvous()
        except RendezvousGracefulExitError as error:
            raise TrainingOver from error
        self._num_starts += 1
        if found.world_size > 1:
            enable_keepalive()
        # torch gives each meeting of elastic nodes a new store, and fixed nodes the same one.
        number = self._num_starts if self.is_fixed else 0
        self._last = PrefixStore(f"core-sdk/{number}", found.store)
        return Start(found.rank, found.world_size, *self._new_ranks_store(found), self._last)

    def _new_ranks_store(self, found: Any) -> tuple[str, int]:
        """Returns the address and port of the ranks' store, which the first node keeps, and renews for each start.

        Fixed nodes use the port that was given in their first start, as under torchrun.
        """
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        if self.is_fixed and self._num_starts == 1:
            given = found.bootstrap_store_info
            return given.master_addr, given.master_port
        if found.rank == 0:
            address = found.bootstrap_store_info.master_addr
            self._ranks_store = store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
            self._last.set("ranks-store", json.dumps([address, store.port]))
        self._last.wait(["ranks-store"], _STORE_TIMEOUT)
        address, port = json.loads(self._last.get("ranks-store"))
        return address, port

    def num_waiting(self) -> int:
        return int(self._handler.num_nodes_waiting())

    def is_place_there(self) -> bool:
        try:
            self._last.check([""])
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        self._handler.shutdown()


def _start_store(listener: socket.socket) -> subprocess.Popen[bytes]:
    """Starts a process that keeps the store of a node's ranks, and ends with this one."""
    descriptor = listener.fileno()
    arguments = ["-P", _store_process.__file__, str(descriptor)]
    return start_helper(arguments, cwd="/", stdin=subprocess.PIPE, pass_fds=[descriptor])
