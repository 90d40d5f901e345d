"""Finishing saves whose files are staged: at once, or in a thread beside the script."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core_sdk.core._checkpoint._grace import Grace
from core_sdk.errors import GraceExceededError

logger = logging.getLogger("core_sdk.checkpoint")

_LOOK_INTERVAL_S = 0.1
# A cancelled save removes what it had staged.
_CANCEL_S = 5.0
_NICENESS = 10


@dataclass(frozen=True)
class Save:
    """A checkpoint on its way."""

    storage_id: str
    begun_at: float
    """When its files began to be written, by `time.monotonic()`."""
    finish: Callable[[], None]
    """Stores and records what was staged; or raises, and then nothing is left of it."""
    cancel: Callable[[], None]
    """Makes `finish`, in another thread, end soon with an error."""
    path: Path | None = None
    """The directory that the script wrote into. It is gone once the save has ended."""


class Saves:
    """The saves of one rank, one after the other.

    At most one is finished in the background. Its failure is raised by the next call here, once; it is forgotten only
    when it was raised.
    """

    def __init__(self, grace: Grace, *, is_chief: bool) -> None:
        self._grace = grace
        self._is_chief = is_chief
        self._process = os.getpid()
        self._pending: _BackgroundSave | None = None
        self._awaits_exit = False
        self._finished: Save | None = None
        self.first_duration_s: float | None = None
        """From the first file to the commit, of the first checkpoint that was stored."""

    def take(self, save: Save, *, wait: bool) -> None:
        """Finishes it here and now, or begins to in a thread."""
        self.wait()  # one that was begun inside this one's block
        self._look_for_stragglers()
        if wait:
            self._finish(save)
            return
        self._await_at_exit()
        # After a stop there is no training left that would come first, and the time is short.
        self._pending = _BackgroundSave(save, self._finish, is_urgent=self._grace.has_begun())
        self._pending.start()

    def is_pending(self, storage_id: str | None = None) -> bool:
        """Whether this save, or any, is in flight, or has failed and nobody knows it yet."""
        pending = self._own_pending()
        return pending is not None and storage_id in (None, pending.save.storage_id)

    def wait(self) -> None:
        """Blocks until the pending save is stored, and raises its failure; may be interrupted, and called again."""
        pending = self._own_pending()
        if pending is None:
            return
        pending.is_over()
        try:
            if pending.failure is not None:
                raise pending.failure
        except BaseException as error:
            if error is pending.failure:
                self._pending = None
            raise
        self._pending = None

    def wait_for(self, storage_id: str) -> None:
        """As `wait`, if it is this save that is pending."""
        if self.is_pending(storage_id):
            self.wait()

    def close(self) -> None:
        """As `wait`; once a stop was asked for, within the grace: then the save is given up, `GraceExceededError`.

        An interrupted wait gives it up, too: there will be no other.
        """
        self._look_for_stragglers()
        pending = self._own_pending()
        if pending is None or pending.is_own_thread():  # a forgotten Context may be collected anywhere
            return
        try:
            while not pending.is_over(_LOOK_INTERVAL_S):
                if self._grace.is_over():
                    taken_s = time.monotonic() - pending.save.begun_at
                    raise GraceExceededError(pending.save.storage_id, taken_s, self._grace.total_s or 0.0)
        except BaseException as error:
            is_stored = pending.give_up()
            self._pending = None
            if is_stored and isinstance(error, GraceExceededError):
                return
            raise
        self.wait()

    def _own_pending(self) -> _BackgroundSave | None:
        """None in a forked child, which has not inherited the thread."""
        return self._pending if os.getpid() == self._process else None

    def _finish(self, save: Save) -> None:
        save.finish()
        self._finished = save
        if self.first_duration_s is None:
            self.first_duration_s = time.monotonic() - save.begun_at
            if self._is_chief:
                self._grace.warn_if_shorter_than(self.first_duration_s)

    def _look_for_stragglers(self) -> None:
        """Warns if something has written into the directory of the last save after its end: nobody would find it."""
        save, self._finished = self._finished, None
        if os.getpid() == self._process and save and save.path and save.path.exists():
            message = (
                f"something has written into {save.path} after its block had ended: that is no part of checkpoint "
                f"{save.storage_id}, and will be removed. Wait for it inside the block: for what dcp.async_save() "
                "returns, by result()"
            )
            logger.error(message)
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _await_at_exit(self) -> None:
        """Waits for a save before the interpreter, at its end, closes all thread pools, which the save needs."""
        if not self._awaits_exit:
            self._awaits_exit = True
            reference = weakref.ref(self)
            # `atexit` would be too late, and nothing public comes earlier.
            threading._register_atexit(lambda: _settle(reference()))  # type: ignore[attr-defined]


class _BackgroundSave:
    """One save, and the thread that finishes it."""

    def __init__(self, save: Save, finish: Callable[[Save], None], *, is_urgent: bool) -> None:
        self.save = save
        self._is_urgent = is_urgent
        self.failure: BaseException | None = None
        self._finish = finish
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="core-sdk-save", daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:
            # The system has no thread left for us: better here than not at all.
            self._work()

    def is_over(self, timeout_s: float | None = None) -> bool:
        """Waits until it is over, or for `timeout_s`; says which."""
        return self._is_over.wait(timeout_s)

    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def give_up(self) -> bool:
        """Cancels the save; says whether it is stored after all."""
        self.save.cancel()
        if not self.is_over(_CANCEL_S):
            logger.warning("checkpoint %s was given up, and its end is not waited for", self.save.storage_id)
            return False
        return self.failure is None

    def _run(self) -> None:
        if not self._is_urgent:
            _lower_priority()
        self._work()

    def _work(self) -> None:
        try:
            self._finish(self.save)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self.failure = error
        finally:
            self._is_over.set()


def _lower_priority() -> None:
    """Lets the training come first. On Linux each thread has a niceness, which the threads that it starts inherit."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


def _settle(saves: Saves | None) -> None:
    """Waits, and leaves the failure to whoever closes the Context afterwards."""
    if saves is not None and (pending := saves._own_pending()) is not None:
        while not pending.is_over(_LOOK_INTERVAL_S) and not saves._grace.is_over():
            pass
