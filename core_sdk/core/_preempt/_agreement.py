"""How ranks come to stop at the same call of `should_preempt()`, without a collective in any call.

The argument why this neither hangs nor disagrees is in docs/stop.md; the names there are those used here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from core_sdk.distributed import Channel
from core_sdk.errors import CollectiveTimeoutError

_TOPIC = "stop"
_CHECK_INTERVAL_S = 0.2
# The chief knows who is late: it speaks first.
_MEMBER_GRACE_S = 5.0
_FAREWELL_S = 5.0
_RECOUNT_S = 1.0
_NUM_NAMED = 8


class Wanted(msgspec.Struct, frozen=True, tag=True):
    """To the chief: a stop is asked for."""

    source: str


class Asked(msgspec.Struct, frozen=True, tag=True):
    """To all: how often have you called? Hold at your next call."""


class Counted(msgspec.Struct, frozen=True, tag=True):
    """To the chief: so often, the call that may be going on included."""

    num_calls: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """To all: stop at this call."""

    target: int
    source: str


class Caught(msgspec.Struct, frozen=True, tag=True):
    """To all: the chief asks for stops, so that its members' SIGTERM is one too."""


_Message = Wanted | Asked | Counted | Committed | Caught


class StopAgreement:
    """One rank's part. Its owner counts the calls; `on_news` tells it, from any thread, that there is something to see.

    With `counts_calls` the ranks agree on a call; without, each stops at its next one.
    """

    def __init__(
        self, channel: Channel, *, counts_calls: bool, num_calls: Callable[[], int], on_news: Callable[[], None]
    ) -> None:
        self._channel = channel
        self._counts_calls = counts_calls
        self._num_calls = num_calls
        self._on_news = on_news
        self._is_held = False
        self._committed: Committed | None = None
        self._has_committed = threading.Event()
        self._wanted_by: str | None = None
        self._counts: dict[int, int] = {}
        self.is_caught_by_chief = False
        channel.listen(_TOPIC, self._hear)

    @property
    def source(self) -> str | None:
        """Who asked for the stop, once it is agreed."""
        return self._committed.source if self._committed else None

    @property
    def is_calm(self) -> bool:
        """Nothing is asked for."""
        return not self._is_held and self._committed is None

    @property
    def is_held(self) -> bool:
        """This rank's next call waits until the chief has committed a target."""
        return self._is_held and self._committed is None

    def want(self, source: str) -> None:
        """Asks for a stop of all ranks; from any thread or signal handler, on any rank."""
        if not self._channel.has_chief():
            # It has left, and its training is over: nobody is left to agree with.
            self._commit(Committed(0, source))
            return
        if self._counts_calls:
            # This rank waits from now on, so that the others, in step with it, cannot run ahead either.
            self._is_held = True
            self._on_news()
        self._tell_chief(Wanted(source))

    def announce_catching(self) -> None:
        """On the chief: says to all that it asks for stops."""
        self._channel.tell_all(_TOPIC, msgspec.msgpack.encode(Caught()))

    def leave(self) -> None:
        """This rank makes no more calls; the others need not wait for it."""
        self._tell_chief(Counted(self._num_calls()))

    def finish(self) -> None:
        """After `leave()`, on the chief: gives an agreement that has begun the time to come about."""
        if self._is_held and self._channel.rank == 0:
            # Others wait for what only the chief can tell them.
            self._has_committed.wait(_FAREWELL_S)

    def unevenness(self) -> str | None:
        """Once a stop is agreed, where some ranks have made its call and others have not: who has called how often.

        Only the chief knows of all; another rank knows that it is behind if the chief has left.
        """
        committed = self._committed
        if committed is None or not self._counts_calls:
            return None
        if self._channel.rank == 0:
            self._recount(committed.target)
            return describe_unevenness(committed.target, self._counts)
        if self._channel.has_chief():
            return None
        return describe_unevenness(committed.target, {0: committed.target, self._channel.rank: self._num_calls()})

    def is_reached(self, call: int) -> bool:
        """Whether this rank stops at its call of that number; waits while that is being agreed.

        It waits for the channels' threads only, never for what another rank's script does. Raises the `ChannelError`
        that has ended the group meanwhile.
        """
        if self.is_held:
            self._await_commitment()
        return self._committed is not None and call >= self._committed.target

    def _recount(self, target: int) -> None:
        """On the chief; the channels' threads answer, whatever the scripts wait for."""
        self._tell_all(Asked())
        deadline = time.monotonic() + _RECOUNT_S
        while min(self._counts.values()) < target and time.monotonic() < deadline:
            time.sleep(_RECOUNT_S / 100)

    def _await_commitment(self) -> None:
        is_chief = self._channel.rank == 0
        timeout_s = self._channel.timeout_s + (0.0 if is_chief else _MEMBER_GRACE_S)
        deadline = time.monotonic() + timeout_s
        while not self._has_committed.wait(_CHECK_INTERVAL_S):
            self._channel.check()
            if not self._channel.has_chief():
                self._is_held = False  # it has left in good order: the training is over, and there is nothing to agree
                return
            if time.monotonic() > deadline:
                missing = [r for r in range(self._channel.size) if r not in self._counts] if is_chief else [0]
                findings = ["no answer to how often it has called should_preempt()"]
                raise CollectiveTimeoutError("should_preempt()", self._channel.timeout_s, missing, findings)

    def _hear(self, rank: int, content: bytes) -> None:
        match msgspec.msgpack.decode(content, type=_Message):
            case Wanted(source):
                self._begin(source)
            case Asked():
                self._hold()
            case Counted(num_calls):
                self._count(rank, num_calls)
            case Committed() as committed:
                self._commit(committed)
            case Caught():
                self.is_caught_by_chief = True

    def _begin(self, source: str) -> None:
        """On the chief."""
        if self._wanted_by is None:
            self._wanted_by = source
            if self._counts_calls:
                self._tell_all(Asked())
            else:
                self._tell_all(Committed(0, source))

    def _hold(self) -> None:
        # In this order: a call that still passes unheld is counted.
        self._is_held = True
        self._on_news()
        self._tell_chief(Counted(self._num_calls()))

    def _count(self, rank: int, num_calls: int) -> None:
        """On the chief."""
        self._counts[rank] = max(num_calls, self._counts.get(rank, 0))
        if self._wanted_by is not None and len(self._counts) == self._channel.size and self._committed is None:
            self._tell_all(Committed(max(self._counts.values()) + 1, self._wanted_by))

    def _commit(self, committed: Committed) -> None:
        if self._committed is None:
            self._committed = committed
            self._has_committed.set()
            self._on_news()

    def _tell_chief(self, message: _Message) -> None:
        self._channel.tell_chief(_TOPIC, msgspec.msgpack.encode(message))

    def _tell_all(self, message: _Message) -> None:
        self._channel.tell_all(_TOPIC, msgspec.msgpack.encode(message))


def describe_unevenness(target: int, counts: Mapping[int, int]) -> str | None:
    """None while all ranks, or none, have made the call of `should_preempt()` at which they were to stop."""
    there = [f"rank {rank}" for rank, count in sorted(counts.items()) if count >= target]
    behind = [f"rank {rank} has made {count} calls" for rank, count in sorted(counts.items()) if count < target]
    if not there or not behind:
        return None
    return (
        f"the ranks were to stop at call {target} of should_preempt(): {_listed(there)} made it, but "
        f"{_listed(behind)}. All ranks must call should_preempt() equally often"
    )


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(words[:_NUM_NAMED])
    return shown if len(words) <= _NUM_NAMED else f"{shown} and {len(words) - _NUM_NAMED} more"
