"""A store for the ranks of one start, where torch has one for all starts.

Ranks leave their addresses in it, and their successors would look for each other there: a connection refused, and a
restart used up.
"""

from __future__ import annotations

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from launch._framework import Start


def fresh_store(start: Start, number: int) -> tuple[TCPStore | None, int]:
    """Its server, on the first node, and its port there. All nodes call it, with the same number; blocking."""
    key = f"core-sdk/{number}/port"
    is_first_node = start.node_rank == 0
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False) if is_first_node else None
    if server is not None:
        start.store.set(key, str(server.port))
    return server, int(start.store.get(key))
