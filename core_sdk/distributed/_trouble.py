"""What went wrong in a group, told at once to the thread that waits."""

from __future__ import annotations

import contextlib
import os
import threading

from core_sdk.distributed._messages import Died, Interrupted, Left, Mismatch, TimedOut, Trouble
from core_sdk.errors import (
    ChannelError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    RankDiedError,
    RankFailedError,
    RankLeftError,
)


class TroubleBoard:
    """The first trouble, which ends the group, and who has left it. Any thread may write; one waits."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._guard = threading.Lock()
        self._trouble: Trouble | None = None
        self._left: dict[int, Left] = {}

    def fileno(self) -> int:
        """Readable when there is something new."""
        return self._read

    def report(self, trouble: Trouble) -> bool:
        """Whether it is the first."""
        with self._guard:
            if self._trouble is not None:
                return False
            self._trouble = trouble
        self._wake()
        return True

    def report_left(self, left: Left) -> None:
        with self._guard:
            self._left[left.rank] = left
        self._wake()

    def knows(self, rank: int) -> bool:
        """Whether it is known why the connection to this rank has ended."""
        return rank in self._left or self._trouble is not None

    def check(self, number: int, call: str) -> None:
        """Raises the `ChannelError` that makes this rank's call of that number impossible."""
        if self._trouble is not None:
            raise _error_of(self._trouble)
        for left in self._left.values():
            if left.num_calls < number:
                raise _error_of_left(left, call)

    def is_quiet(self) -> bool:
        return self._trouble is None and not self._left

    def forget_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: woken already
            os.write(self._write, b"!")


def _error_of(trouble: Trouble) -> ChannelError:
    match trouble:
        case Died(rank, process):
            return RankDiedError(rank, process)
        case Mismatch(first_rank, first_call, second_rank, second_call):
            return CollectiveMismatchError(first_rank, first_call, second_rank, second_call)
        case TimedOut(call, timeout_s, missing, findings):
            return CollectiveTimeoutError(call, timeout_s, missing, findings)
        case Interrupted(rank, error_text, traceback_text):
            return RankFailedError(rank, error_text, traceback_text)


def _error_of_left(left: Left, call: str) -> ChannelError:
    if left.error_text:
        return RankFailedError(left.rank, left.error_text, left.traceback_text)
    return RankLeftError(left.rank, call)
