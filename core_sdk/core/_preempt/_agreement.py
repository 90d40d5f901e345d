"""How all ranks agree to stop at the same call of `should_preempt()`, without a collective in any call.

docs/stop.md shows why this can neither hang nor disagree; it uses the same names.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from core_sdk._distributed import Channel
from core_sdk._ground.decoding import msgpack_decoder
from core_sdk.errors import CollectiveTimeoutError

_TOPIC = "stop"
_CHECK_INTERVAL_S = 0.2
# The chief knows who is late, and should be the first to raise an error.
_MEMBER_GRACE_S = 5.0
_FAREWELL_S = 5.0
_RECOUNT_S = 1.0
_NUM_NAMED = 8


class StopWanted(msgspec.Struct, frozen=True, tag=True):
    """Tells the chief that a stop is asked for."""

    source: str


class CountsAsked(msgspec.Struct, frozen=True, tag=True):
    """Asks all ranks to tell how often they have called, and to hold at their next call."""


class Counted(msgspec.Struct, frozen=True, tag=True):
    """Tells the chief how often this rank has called, counting a call that may be going on."""

    num_calls: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """Tells all ranks to stop at call `target`."""

    target: int
    source: str


class Caught(msgspec.Struct, frozen=True, tag=True):
    """Tells all ranks that the chief asks whether to stop, so that a SIGTERM on any rank counts from now on."""


_Message = StopWanted | CountsAsked | Counted | Committed | Caught


class StopAgreement:
    """The part of one rank in the agreement.

    Its owner counts the calls. Any thread may call `on_news` when the state has changed, and `on_caught` when the chief
    has told that it asks whether to stop. With `counts_calls` the ranks agree on a call; without it, each rank stops at
    its next call.
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
        """The first source that asked for a stop (chief only)."""
        self._counts: dict[int, int] = {}
        channel.listen(_TOPIC, self._hear)

    @property
    def source(self) -> str | None:
        """The source that asked for the stop, once this rank knows that it is agreed; else None."""
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
        self._tell_chief(StopWanted(source))

    def await_agreement(self) -> None:
        """Waits until this rank knows the agreed stop, for a few seconds at most."""
        self._has_committed.wait(_FAREWELL_S)

    def announce_catching(self) -> None:
        """Tells all ranks that the chief asks whether to stop (chief only)."""
        self._channel.tell_all(_TOPIC, msgspec.msgpack.encode(Caught()))

    def leave(self) -> None:
        """Tells the chief that this rank makes no more calls, so that the others need not wait for it."""
        self._tell_chief(Counted(self._num_calls()))

    def finish(self) -> None:
        """Waits on the chief for an agreement that has begun, for a few seconds at most. Called after `leave()`."""
        if self._is_held and self._channel.rank == 0:
            # The others wait for the target, which only the chief can commit.
            self._has_committed.wait(_FAREWELL_S)

    def unevenness(self) -> str | None:
        """Describes how often each rank has called, if only some have made the call at which all were to stop.

        Else it returns None. The chief asks all ranks, and waits up to a second. Another rank knows only that it is
        behind the chief, once the chief has left.
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
        """Returns whether this rank stops at its call of that number; waits while the ranks agree on that.

        It waits only for the channels' threads, never for another rank's script. Raises the `ChannelError` that has
        ended the group.
        """
        if self.is_held:
            self._await_commitment()
        return self._committed is not None and call >= self._committed.target

    def _recount(self, target: int) -> None:
        """Asks all ranks again how often they have called, and waits up to a second (chief only)."""
        self._tell_all(CountsAsked())
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
                self._is_held = False  # the chief has ended well, since the training is over
                return
            if time.monotonic() > deadline:
                missing = [r for r in range(self._channel.size) if r not in self._counts] if is_chief else [0]
                findings = ["no answer to how often it has called should_preempt()"]
                raise CollectiveTimeoutError("should_preempt()", self._channel.timeout_s, missing, findings)

    def _hear(self, rank: int, content: bytes) -> None:
        match msgpack_decoder(_Message)(content):
            case StopWanted(source):
                self._begin(source)
            case CountsAsked():
                self._hold()
            case Counted(num_calls):
                self._count(rank, num_calls)
            case Committed() as committed:
                self._commit(committed)
            case Caught():
                self._on_caught()

    def _begin(self, source: str) -> None:
        """Begins the agreement at the first request for a stop (chief only)."""
        if self.wanted_by is None:
            self.wanted_by = source
            if self._counts_calls:
                self._tell_all(CountsAsked())
            else:
                self._tell_all(Committed(0, source))

    def _hold(self) -> None:
        # `_is_held` comes first, so that a call which is no longer held is counted.
        self._is_held = True
        self._on_news()
        self._tell_chief(Counted(self._num_calls()))

    def _count(self, rank: int, num_calls: int) -> None:
        """Notes a rank's count, and commits the target once all counts are known (chief only)."""
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
    """Describes which ranks have made the call at which all were to stop. Returns None if all or none of them have."""
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
