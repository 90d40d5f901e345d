"""Signs of life and failures that the launchers of the nodes exchange through a store.

Otherwise a node would learn of another's failure only when its own ranks lose their peers: late, or never if they wait
in a collective.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec

from core_sdk._ground.typed_lines import from_line, to_line
from core_sdk._machine.processes import FailedElsewhere, NodesLost

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

# The nodes come to `exchange` at the same time.
_EXCHANGE_TIMEOUT = timedelta(seconds=60)
# The store ends with the node that keeps it, which may be the one that failed.
_READERS_S = 3.0
_PAUSE_S = 0.05
_HEARTBEAT_INTERVAL_S = 2.0
# More than the ranks' own channel takes to notice a loss, since the ranks' errors say more.
_LOST_S = 40.0
# When the store is gone, the ranks lose their peers, and usually report the cause within this time.
_STORE_GONE_S = 10.0
# If this process was stopped for a while, the others were not silent during that time.
_LONGEST_INTERVAL_S = 1.0
_FAILURE = "failure"
_LEFT = b"left"


T = TypeVar("T")


class NodeFacts(msgspec.Struct, frozen=True):
    """The facts about a node that all launchers must know before they start ranks."""

    host: str
    num_restarts: int
    """The number of restarts that the node's own ranks made necessary."""
    trial: str
    """What the node's ranks have said about their trial; empty if there has been none."""
    num_ranks: int
    role: str


class PeerNodes:
    """The other nodes, during one start of the ranks."""

    def __init__(self, store: Store | None, node: int = 0, num_nodes: int = 1, keeper: str = "") -> None:
        """`store` is empty at first; `keeper` names the node that keeps it."""
        self.is_alone = num_nodes == 1
        self._store = None if self.is_alone else store
        self._node = node
        self._keeper = keeper
        self._hosts = [f"number {each}" for each in range(num_nodes)]
        self._heartbeats = [b""] * num_nodes
        self._silences_s = [0.0] * num_nodes
        self._store_gone_s = 0.0
        self._num_heartbeats = 0
        self._next_heartbeat_at = 0.0
        self._last_read_at = time.monotonic()

    @property
    def is_store_gone(self) -> bool:
        """Whether the store is gone, so that no node can be told anything any more."""
        return self._store is None and not self.is_alone

    def exchange(self, facts: NodeFacts) -> list[NodeFacts]:
        """Exchanges facts with all nodes, and returns the facts of all. Blocks. Raises torch's `DistError`."""
        if self._store is None:
            return [facts]
        keys = [f"facts/{node}" for node in range(len(self._hosts))]
        self._store.set(keys[self._node], to_line(facts).decode())
        self._store.wait(keys, _EXCHANGE_TIMEOUT)
        all_facts = [from_line(self._store.get(key), NodeFacts) for key in keys]
        self._hosts = [each.host for each in all_facts]
        return all_facts

    def failure(self) -> FailedElsewhere | None:
        """Returns a failure that another node has posted, or None. Also sends this node's heartbeats: call it often."""
        now = time.monotonic()
        passed_s, self._last_read_at = min(now - self._last_read_at, _LONGEST_INTERVAL_S), now
        if self._store is None:
            self._store_gone_s += passed_s
        self._silences_s = [silence_s + passed_s for silence_s in self._silences_s]
        return self._ask(self._read, None)

    def lost(self) -> NodesLost | None:
        """Returns the nodes that have been silent for too long, or None."""
        if self.is_store_gone:
            return NodesLost((self._keeper,)) if self._store_gone_s > _STORE_GONE_S else None
        silent = [node for node, silence_s in enumerate(self._silences_s) if silence_s > _LOST_S]
        return NodesLost(tuple(self._hosts[node] for node in silent)) if silent and not self.is_alone else None

    def post(self, failure: FailedElsewhere) -> FailedElsewhere | None:
        """Posts a failure. If another node has posted one before, returns that: this failure was not the first.

        Waits a few seconds for the other nodes to read it, unless all ranks are restarted.
        """
        return self._ask(lambda store: self._post(store, failure), None)

    def leave(self) -> None:
        """Says that this node needs the others no longer, so that its later silence means nothing."""
        self._ask(self._leave, None)

    def staying(self) -> list[str]:
        """Returns the nodes that still need the others, as far as this node can learn."""
        return self._ask(
            lambda store: [host for node, host in enumerate(self._hosts) if not store.check([f"left/{node}"])], []
        )

    def _ask(self, question: Callable[[Store], T], otherwise: T) -> T:
        """Returns the answer to a question to the store, or `otherwise` if the store is gone."""
        if self._store is None:
            return otherwise
        try:
            return question(self._store)
        except RuntimeError:
            self._store = None
            return otherwise

    def _read(self, store: Store) -> FailedElsewhere | None:
        if store.check([_FAILURE]):
            return self._take(store, store.get(_FAILURE))
        if time.monotonic() >= self._next_heartbeat_at:
            self._num_heartbeats += 1
            store.set(f"heartbeat/{self._node}", str(self._num_heartbeats))
            for node, last in enumerate(self._heartbeats):
                key = f"heartbeat/{node}"
                heartbeat = store.get(key) if store.check([key]) else b""
                if heartbeat != last or heartbeat == _LEFT:
                    self._heartbeats[node], self._silences_s[node] = heartbeat, 0.0
            self._next_heartbeat_at = time.monotonic() + _HEARTBEAT_INTERVAL_S
        return None

    def _take(self, store: Store, notice: bytes) -> FailedElsewhere:
        self._leave(store)
        return from_line(notice, FailedElsewhere)

    def _post(self, store: Store, failure: FailedElsewhere) -> FailedElsewhere | None:
        notice = to_line(failure)
        posted = store.compare_set(_FAILURE, "", notice.decode())
        if posted != notice:
            return self._take(store, posted)
        self._leave(store)
        deadline = time.monotonic() + (0 if failure.is_restarting else _READERS_S)
        while time.monotonic() < deadline and self.staying():
            time.sleep(_PAUSE_S)
        return None

    def _leave(self, store: Store) -> None:
        store.set(f"heartbeat/{self._node}", _LEFT.decode())
        store.set(f"left/{self._node}", "")
