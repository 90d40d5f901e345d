"""The state of a group: the fault that has ended it, and the ranks that have left."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from core_sdk._distributed.calls._wakeup_pipe import WakeupPipe
from core_sdk._distributed.transport._failure import RankFailure
from core_sdk._distributed.transport._messages import Died, Fault, Left, Mismatch, TimedOut
from core_sdk.errors import (
    ChannelError,
    CollectiveTimeoutError,
    RankDiedError,
    RankFailedError,
    RankLeftError,
)


class GroupState:
    """The fault that has ended a group, and the ranks that have left it.

    Any thread may report. The thread that makes the calls polls `wakeup` together with its connections.
    """

    def __init__(self, known_as: Sequence[int]) -> None:
        """`known_as` holds the number by which errors name each rank of the group."""
        self.wakeup = WakeupPipe()
        self._known_as = known_as
        self._guard = threading.Lock()
        self._fault: Fault | None = None
        self._left: dict[int, Left] = {}
        self._is_closed = False

    def report(self, fault: Fault) -> bool:
        """Records a fault if it is the first one. Returns whether it is."""
        with self._guard:
            if self._fault is not None:
                return False
            self._fault = fault
        self.wakeup.wake()
        return True

    def report_left(self, left: Left) -> None:
        with self._guard:
            self._left[left.rank] = left
        self.wakeup.wake()

    def report_closed(self) -> None:
        """Records that this rank itself has closed the channel, perhaps in the middle of a call."""
        self._is_closed = True
        self.wakeup.wake()

    def check(self, number: int, call: object) -> None:
        """Raises a `ChannelError` if this rank's call of that number has become impossible."""
        if self._is_closed:
            raise closed(call)
        if self._fault is not None:
            raise self._error_of(self._fault)
        for left in list(self._left.values()):
            if left.num_calls < number:
                raise self._error_of_left(left, call)

    def check_presence(self, rank: int, call: object) -> None:
        """Raises a `ChannelError` if the rank has left, even if it made the call before."""
        if rank in self._left:
            raise self._error_of_left(self._left[rank], call)

    def knows(self, rank: int) -> bool:
        """Returns whether it is known why the connection to this rank has ended."""
        return rank in self._left or self._fault is not None

    def has_fault(self) -> bool:
        return self._fault is not None

    def has_left(self, rank: int) -> bool:
        return rank in self._left

    def is_quiet(self) -> bool:
        return self._fault is None and not self._left and not self._is_closed

    def _error_of(self, fault: Fault) -> ChannelError:
        match fault:
            case Died(rank, process):
                return RankDiedError(self._known_as[rank], process)
            case Mismatch(first_rank, first_call, second_rank, second_call):
                return ChannelError(
                    f"the ranks do not make the same calls: rank {self._known_as[first_rank]} called {first_call} "
                    f"where rank {self._known_as[second_rank]} called {second_call}. Every rank must make the same "
                    "calls in the same order."
                )
            case TimedOut(call, timeout_s, missing, findings):
                return CollectiveTimeoutError(call, timeout_s, [self._known_as[rank] for rank in missing], findings)
            case RankFailure(rank, error_text, traceback_text):
                return RankFailedError(self._known_as[rank], error_text, traceback_text)

    def _error_of_left(self, left: Left, call: object) -> ChannelError:
        if left.failure is not None:
            return self._error_of(left.failure)
        return RankLeftError(self._known_as[left.rank], str(call))


def closed(call: object, *, is_forked: bool = False) -> ChannelError:
    """Returns the error of a call on a DistributedContext that this process has closed, or inherited by a fork."""
    reason = "it belongs to the parent process" if is_forked else "it is closed"
    return ChannelError(f"{call} on a DistributedContext that cannot be used: {reason}.")
