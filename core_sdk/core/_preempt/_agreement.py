"""How all ranks agree to stop at the same call of `should_preempt()`, without a collective in any call.

docs/stop.md shows why this can neither hang nor disagree; it uses the same names.
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
# The chief knows who is late, and should be the first to raise an error.
_MEMBER_GRACE_S = 5.0
_FAREWELL_S = 5.0
_RECOUNT_S = 1.0
_NUM_NAMED = 8


class Wanted(msgspec.Struct, frozen=True, tag=True):
    """To the chief: a stop is asked for."""

    source: str


class Asked(msgspec.Struct, frozen=True, tag=True):
    """To all: tell how often you have called, and hold at your next call."""


class Counted(msgspec.Struct, frozen=True, tag=True):
    """To the chief: this rank has called so often, counting a call that may be going on."""

    num_calls: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """To all: stop at this call."""

    target: int
    source: str


class Caught(msgspec.Struct, frozen=True, tag=True):
    """To all: the chief asks whether to stop, so that a SIGTERM of any rank counts."""


_Message = Wanted | Asked | Counted | Committed | Caught


class StopAgreement:
    """One rank's part in the agreement.

    Its owner counts the calls. Any thread may call `on_news` when the state has changed, and `on_caught` when the chief
    has told that it asks whether to stop. With `counts_calls` the ranks
    agree on a call; without, each stops at its next one.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        counts_calls: bool,
        num_calls: Callable[[], int],
        on_news: Callable[[], None],
        on_caught: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._counts_calls = counts_calls
        self._num_calls = num_calls
        self._on_news = on_news
        self._on_caught = on_caught
        self._is_held = False
        self._committed: Committed | None = None
        self._has_committed = threading.Event()
        self.wanted_by: str | None = None
        """On the chief: who was the first to ask for a stop."""
        self._counts: dict[int, int] = {}
        channel.listen(_TOPIC, self._hear)

    @property
    def source(self) -> str | None:
        """Who asked for the stop, once it is agreed."""
        return self._committed.source if self._committed else None

    @property
    def is_calm(self) -> bool:
        """Whether no stop is asked for."""
        return not self._is_held and self._committed is None

    @property
    def is_held(self) -> bool:
        """Whether this rank's next call waits until the chief has committed a target."""
        return self._is_held and self._committed is None

    def want(self, source: str) -> None:
        """Asks for a stop of all ranks. Any rank, thread or signal handler may call it."""
        if not self._channel.has_chief():
            # The chief has left, since its training is over: there is nobody to agree with.
            self._commit(Committed(0, source))
            return
        if self._counts_calls:
            # This rank waits from now on, so that the others, which keep in step with it, cannot run ahead.
            self._is_held = True
            self._on_news()
        self._tell_chief(Wanted(source))

    def await_agreement(self) -> None:
        """Waits for what the chief has told all ranks, but not for long."""
        self._has_committed.wait(_FAREWELL_S)

    def announce_catching(self) -> None:
        """On the chief: tells all ranks that it asks whether to stop."""
        self._channel.tell_all(_TOPIC, msgspec.msgpack.encode(Caught()))

    def leave(self) -> None:
        """Tells the chief that this rank makes no more calls, so that the others need not wait for it."""
        self._tell_chief(Counted(self._num_calls()))

    def finish(self) -> None:
        """On the chief, after `leave()`: waits for an agreement that has begun."""
        if self._is_held and self._channel.rank == 0:
            # The others wait for the target, which only the chief can commit.
            self._has_committed.wait(_FAREWELL_S)

    def unevenness(self) -> str | None:
        """How often each rank has called, if only some have made the call at which all were to stop.

        Only the chief knows this of all ranks; another rank knows that it is behind if the chief has left.
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
        """Whether this rank stops at its call of that number; waits while the ranks agree on that.

        It waits only for the channels' threads, never for another rank's script. Raises the `ChannelError` that has
        ended the group meanwhile.
        """
        if self.is_held:
            self._await_commitment()
        return self._committed is not None and call >= self._committed.target

    def _recount(self, target: int) -> None:
        """On the chief. The channels' threads answer, not the scripts."""
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
                self._is_held = False  # it has left in good order, since the training is over
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
                self._on_caught()

    def _begin(self, source: str) -> None:
        """On the chief."""
        if self.wanted_by is None:
            self.wanted_by = source
            if self._counts_calls:
                self._tell_all(Asked())
            else:
                self._tell_all(Committed(0, source))

    def _hold(self) -> None:
        # In this order, so that a call which is not held any more is counted.
        self._is_held = True
        self._on_news()
        self._tell_chief(Counted(self._num_calls()))

    def _count(self, rank: int, num_calls: int) -> None:
        """On the chief."""
        self._counts[rank] = max(num_calls, self._counts.get(rank, 0))
        if self.wanted_by is not None and len(self._counts) == self._channel.size and self._committed is None:
            self._tell_all(Committed(max(self._counts.values()) + 1, self.wanted_by))

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
    """Who has made the call at which all were to stop, and who has not; None if all have made it, or none."""
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
