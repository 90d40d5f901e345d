"""What the nodes' launchers tell each other, through the store of their rendezvous: failures, and that they are there.

Without it a node would learn of another's failure when its own ranks fail for want of their peers: late, or never
where they wait in a collective.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import timedelta

from core_sdk.processes import FailedElsewhere, NodesLost
from launch._store import Store

# They pass the same place at the same time, but for one whose launcher is another.
_OTHERS = timedelta(seconds=10)
# The store goes with the node that keeps it, which may be the one that failed.
_READERS_S = 3.0
_PAUSE_S = 0.05
_BEAT_INTERVAL_S = 2.0
# Later than the ranks' own channel notices it: they can say more.
_LOST_S = 40.0
# Of a store that is gone: the ranks, who lose their peers, mostly tell the cause within it.
_GONE_S = 10.0
# Time in which this process was not running, because somebody had stopped it, is no silence of others.
_LONGEST_TICK_S = 1.0
_LEFT = "left"


@dataclass(frozen=True)
class Word:
    """What a node says when the nodes meet."""

    host: str
    num_restarts: int
    """That its own ranks made necessary."""
    trial: str
    """What its ranks have said about their trial; empty if it has had none."""


class Noticeboard:
    """Of one start of the ranks."""

    def __init__(
        self, store: Store | None, node: int = 0, num_nodes: int = 1, keeper: str = "", start: int = 0
    ) -> None:
        """`keeper` names the node that keeps the store; `start` counts the starts that have the same store."""
        self._notice, self._num_readers, self._word, self._beat = (
            f"core-sdk/{start}/{name}" for name in ("failure", "readers", "word", "beat")
        )
        self.is_alone = num_nodes == 1
        self._store = None if self.is_alone else store
        self._node = node
        self._keeper = keeper
        self._hosts = [""] * num_nodes
        self._beats = [b""] * num_nodes
        self._silences_s = [0.0] * num_nodes
        self._gone_s = 0.0
        self._num_beats = 0
        self._next_beat_at = 0.0
        self._last_read_at = time.monotonic()

    @property
    def is_gone(self) -> bool:
        """Nobody can be told anything any more."""
        return self._store is None and not self.is_alone

    def exchange(self, word: Word) -> list[Word]:
        """All nodes' words, this one's among them. Waits for the others, but not for ever: then it is the only one."""
        if self._store is None:
            return [word]
        keys = [f"{self._word}/{index}" for index in range(len(self._hosts))]
        try:
            self._store.set(keys[self._node], json.dumps([word.host, word.num_restarts, word.trial]))
            self._store.wait(keys, _OTHERS)
            words = [Word(*json.loads(self._store.get(key))) for key in keys]
        except RuntimeError:
            return [word]
        self._hosts = [each.host for each in words]
        return words

    def read(self) -> FailedElsewhere | None:
        """What another node has posted. To be called often: by it the others know that this node is there."""
        tick_s = self._tick_s()
        if self._store is None:
            self._gone_s += tick_s
            return None
        try:
            if self._store.check([self._notice]):
                return self._take(self._store.get(self._notice))
            self._listen(self._store, tick_s)
        except RuntimeError:
            self._store = None
        return None

    def lost(self) -> NodesLost | None:
        """The nodes of which nothing has been heard for long."""
        if self.is_gone:
            return NodesLost((self._keeper,)) if self._gone_s > _GONE_S else None
        silent = [node for node, silence_s in enumerate(self._silences_s) if silence_s > _LOST_S]
        return NodesLost(tuple(self._hosts[node] or f"number {node}" for node in silent)) if silent else None

    def post(self, failure: FailedElsewhere) -> FailedElsewhere | None:
        """Returns what another node has posted before; then ours was not the first failure."""
        if self._store is None:
            return None
        notice = json.dumps([failure.code, failure.words, failure.is_restarting])
        try:
            posted = self._store.compare_set(self._notice, "", notice)
            if posted != notice.encode():
                return self._take(posted)
            if not failure.is_restarting:
                self._await_readers(self._store)
        except RuntimeError:
            self._store = None
        return None

    def leave(self) -> None:
        """This node's ranks have ended well: from now on its silence means nothing."""
        if self._store is None:
            return
        try:
            self._store.set(f"{self._beat}/{self._node}", _LEFT)
        except RuntimeError:
            self._store = None

    def _tick_s(self) -> float:
        now = time.monotonic()
        passed_s, self._last_read_at = now - self._last_read_at, now
        return min(passed_s, _LONGEST_TICK_S)

    def _listen(self, store: Store, tick_s: float) -> None:
        others = [node for node in range(len(self._hosts)) if node != self._node]
        for node in others:
            self._silences_s[node] += tick_s
        if time.monotonic() < self._next_beat_at:
            return
        self._num_beats += 1
        store.set(f"{self._beat}/{self._node}", str(self._num_beats))
        for node in others:
            self._hear(store, node)
        self._next_beat_at = time.monotonic() + _BEAT_INTERVAL_S

    def _hear(self, store: Store, node: int) -> None:
        key = f"{self._beat}/{node}"
        beat = store.get(key) if store.check([key]) else b""
        if beat != self._beats[node] or beat == _LEFT.encode():
            self._beats[node], self._silences_s[node] = beat, 0.0

    def _take(self, notice: bytes) -> FailedElsewhere:
        if self._store is not None:
            self._store.add(self._num_readers, 1)
        code, words, is_restarting = json.loads(notice)
        return FailedElsewhere(int(code), tuple(str(line) for line in words), bool(is_restarting))

    def _await_readers(self, store: Store) -> None:
        deadline = time.monotonic() + _READERS_S
        while store.add(self._num_readers, 0) < len(self._hosts) - 1 and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
