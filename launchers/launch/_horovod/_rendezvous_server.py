"""Horovod's rendezvous server, through which the ranks of one start find each other, and its variables."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from socketserver import TCPServer
from typing import Any

from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

# The time that closing the server takes.
_POLL_S = 0.05

_PLACE = ("hostname", "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


class RendezvousServer(RendezvousHTTPServer):  # type: ignore[misc]  # Horovod has no types
    """A server for one start of the ranks, which serves from construction on. `address` is "" for all interfaces.

    Horovod's own `RendezvousServer` always listens on all interfaces, on a port that it guesses, and keeps the port
    when it stops. Raises `OSError`.
    """

    daemon_threads = True

    def __init__(self, address: str, rank_counts: Sequence[int]) -> None:
        super().__init__((address, 0), RendezvousHandler, verbose=0)
        self.init(_plan(rank_counts))
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=[_POLL_S], name="horovod-rendezvous", daemon=True).start()

    def server_bind(self) -> None:
        # The method of HTTPServer also asks the DNS for this host's name, which may take long and is of no use.
        TCPServer.server_bind(self)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


def rank_variables(rank_counts: Sequence[int], rank: int) -> dict[str, str]:
    """Returns the variables in which Horovod's library finds the rank's place. `rank_counts` is by node."""
    slot = asdict(_plan(rank_counts)[rank])
    return {f"HOROVOD_{name.upper()}": str(slot[name]) for name in _PLACE}


def _plan(rank_counts: Sequence[int]) -> list[Any]:
    # Not the nodes' hostnames: Horovod would take two nodes with the same hostname for one.
    hosts = [HostInfo(f"node-{node}", count) for node, count in enumerate(rank_counts)]
    plan: list[Any] = get_host_assignments(hosts, sum(rank_counts))
    return plan
