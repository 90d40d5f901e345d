"""Repeats requests whose failure may pass by itself. The libraries' own retries are turned off.

tenacity does not make this shorter. It counts tries and time from the first try, but here progress resets both,
the store may say how long to wait, and a cancelled transfer ends a pause: its wait, its stop, its sleep and its error
would all be functions of ours.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from core_sdk._home.storage.bucket._bucket import TransientError
from core_sdk._home.storage.bucket._silence import SilenceWatch, Wait
from core_sdk.errors import StorageUnreachableError

T = TypeVar("T")

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0

_HOW_TO_END = "CORE_SDK_STORAGE_DEADLINE_S sets for how long; Ctrl-C ends it now"


class TransferCancelledError(Exception):
    """The transfer was cancelled, or another part of it has failed."""


class Retry:
    """Repeats a call until it works, for at most `deadline_s` without progress.

    Each pause is drawn between 0 and a bound that grows exponentially up to 30 s, so that many clients do not retry at
    the same time (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/, "full jitter"). If the
    store says how long to wait, that is obeyed, but the last try is made at the deadline. A wait of more than 5 s is
    logged, with how to end it.
    """

    def __init__(
        self, deadline_s: float, cancelled: threading.Event | None = None, how_to_end: str = _HOW_TO_END
    ) -> None:
        self.deadline_s = deadline_s
        self._cancelled = cancelled or threading.Event()
        self._silence = SilenceWatch(how_to_end)

    def call(self, what: str, work: Callable[[], T], progress: Callable[[], object] = lambda: None) -> T:
        """Returns what `work` returns. Whenever `progress` has a new value, the deadline starts again.

        Raises `StorageUnreachableError` at the deadline, naming `what`; `TransferCancelledError`.
        """
        with self._silence.waiting(what, self.deadline_s, progress) as wait:
            return self._call(wait, work)

    def _call(self, wait: Wait, work: Callable[[], T]) -> T:
        num_failures = 0
        reached = wait.progress()
        while True:
            if self._cancelled.is_set():
                raise TransferCancelledError(wait.what)
            try:
                return work()
            except TransientError as error:
                wait.reason = error.reason
                if (now_reached := wait.progress()) != reached:
                    reached, num_failures, wait.give_up_at = now_reached, 0, time.monotonic() + self.deadline_s
                rest_s = wait.give_up_at - time.monotonic()
                if rest_s <= 0:
                    raise StorageUnreachableError(wait.what, error.reason, self.deadline_s) from error
                pause_s = min(_pause_s(num_failures, error.retry_after_s), rest_s)
                num_failures += 1
            self._cancelled.wait(pause_s)


def _pause_s(num_failures: int, retry_after_s: float | None) -> float:
    bound_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**num_failures)
    jitter_s = random.uniform(0.0, bound_s)
    return jitter_s if retry_after_s is None else max(0.0, retry_after_s) + min(jitter_s, 1.0)
