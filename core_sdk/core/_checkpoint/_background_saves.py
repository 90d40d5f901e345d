"""Finishing saves whose files are staged: at once, or in a thread while the script goes on."""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import msgspec

from core_sdk.core._checkpoint._grace import Grace
from core_sdk.errors import GraceExceededError

logger = logging.getLogger("core_sdk.checkpoint")

_LOOK_INTERVAL_S = 0.1
# A cancelled save removes what it had staged.
_CANCEL_S = 5.0
_NICENESS = 10


class Save(msgspec.Struct, frozen=True):
    """A checkpoint whose files are staged and not yet stored."""

    storage_id: str
    begun_at: float
    """The time, by `time.monotonic()`, at which the writing of its files began."""
    finish: Callable[[], None]
    """Stores and records the staged files. If it raises, nothing of them is left."""
    cancel: Callable[[], None]
    """Makes `finish`, in another thread, end soon with an error."""
    path: Path | None = None
    """The directory that the script wrote into. It is gone once the save has ended."""


class Saves:
    """The saves of one rank, of which at most one is finished in the background. Threads may share it.

    If one that is finished in the background fails, the next call that waits for it raises its error, once.
    """

    def __init__(self, grace: Grace, *, is_chief: bool) -> None:
        self._grace = grace
        self._is_chief = is_chief
        self._process = os.getpid()
        # Not held while a save is waited for. Reentrant, since a signal handler may save, too.
        self._lock = threading.RLock()
        self._begun: list[_BackgroundSave] = []
        """The background saves that no call has waited for. All but the last are over, and have failed."""
        self._awaits_exit = False
        self._finished: Save | None = None
        self.first_duration_s: float | None = None
        """The duration of the first save that succeeded, from its first file to the commit."""
        self.failure: BaseException | None = None
        """The error that the last failed save has raised."""
        self.last_size_bytes = 0
        """The size of the newest checkpoint that was stored (chief only)."""

    def take(self, save: Save, *, wait: bool) -> None:
        """Finishes the save, or without `wait` starts a thread that does.

        Waits first for one that was begun inside its block, or by another thread. The failure of that is told later.
        """
        self._await_running()
        self._look_for_stragglers()
        if wait or not self._can_await_at_exit():
            self._finish(save)
            return
        # After a stop no training needs the priority, and the time is short.
        background = _BackgroundSave(save, self._finish, is_urgent=self._grace.has_begun())
        while not self._begin(background):
            self._await_running()

    def is_pending(self, storage_id: str | None = None) -> bool:
        """Returns whether this save, or any, was begun in the background and has not been waited for."""
        return any(storage_id in (None, each.save.storage_id) for each in self._unheard())

    def wait(self) -> None:
        """Blocks until no save runs, and raises the failure of one; may be interrupted, and called again."""
        waited_for = self._unheard()
        for each in waited_for:
            each.is_over()
        with self._lock:
            # Another thread may have waited for them, too.
            ended = [each for each in self._begun if each in waited_for]
            rest = [each for each in self._begun if each not in waited_for]
            failed = [(each.save.storage_id, each.failure) for each in ended if each.failure is not None]
            first = failed[0][1] if failed else None
            try:
                if first is not None:
                    for storage_id, failure in failed[1:]:
                        first.add_note(f"checkpoint {storage_id} was not stored either: {failure}")
                    raise first
            except BaseException as error:
                if error is first:
                    self._begun, self.failure = rest, first
                raise
            self._begun = rest

    def wait_for(self, storage_id: str) -> None:
        """Calls `wait` if this save is pending."""
        if self.is_pending(storage_id):
            self.wait()

    def close(self) -> None:
        """Blocks until no save runs, as `wait` does, but after a stop only until the grace is over.

        When the grace is over, or if the wait is interrupted, the save is given up. Raises `GraceExceededError` if the
        grace was too short, unless the save was stored after all.
        """
        self._look_for_stragglers()
        if (running := self._running()) is not None:
            if running.is_own_thread():  # a forgotten Context may be garbage-collected in any thread
                return
            try:
                while not running.is_over(_LOOK_INTERVAL_S):
                    if self._grace.is_over():
                        taken_s = time.monotonic() - running.save.begun_at
                        raise GraceExceededError(running.save.storage_id, taken_s, self._grace.total_s or 0.0)
            except BaseException as error:
                is_stored = running.give_up()
                self._begun.remove(running)
                self.failure = error
                if not (is_stored and isinstance(error, GraceExceededError)):
                    raise
        self.wait()

    def _begin(self, background: _BackgroundSave) -> bool:
        """Starts the save and returns True, or returns False if another one runs."""
        with self._lock:
            if self._running() is not None:
                return False
            background.start()
            self._begun = [*(each for each in self._begun if each.failure is not None), background]
            return True

    def _await_running(self) -> None:
        while (running := self._running()) is not None:
            running.is_over()

    def _running(self) -> _BackgroundSave | None:
        return next((each for each in self._unheard() if not each.is_over(0.0)), None)

    def _unheard(self) -> list[_BackgroundSave]:
        """Returns the background saves that were not waited for; none in a forked child, which has not their thread."""
        return list(self._begun) if os.getpid() == self._process else []

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

    def _can_await_at_exit(self) -> bool:
        """Makes the interpreter wait, at its end, for a save, before it closes all thread pools, which the save needs.

        Returns False, with a warning, if this Python has no means for it: `atexit` would be too late.
        """
        if not self._awaits_exit:
            register = getattr(threading, "_register_atexit", None)  # private: nothing public comes early enough
            if register is None:
                logger.warning("this Python cannot wait for a save at its end: wait=False is not heeded")
                return False
            reference = weakref.ref(self)
            register(lambda: _settle(reference()))
            self._awaits_exit = True
        return True


class _BackgroundSave:
    """A save, and the thread that finishes it."""

    def __init__(self, save: Save, finish: Callable[[Save], None], *, is_urgent: bool) -> None:
        self.save = save
        self._is_urgent = is_urgent
        self.failure: BaseException | None = None
        self._finish = finish
        self._is_over = threading.Event()
        self._thread_id: int | None = None

    def start(self) -> None:
        try:
            # A `threading.Thread` would block the training for milliseconds: its `start()` waits until the thread runs,
            # which then is at work and holds the interpreter's lock.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            # The system cannot start another thread, so this one finishes the save.
            self._work()

    def is_over(self, timeout_s: float | None = None) -> bool:
        """Waits until the save is over, but at most `timeout_s`, and returns whether it is."""
        return self._is_over.wait(timeout_s)

    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread_id and not self._is_over.is_set()

    def give_up(self) -> bool:
        """Cancels the save, waits a few seconds for its end, and returns whether it was stored after all."""
        self.save.cancel()
        if not self.is_over(_CANCEL_S):
            logger.warning("checkpoint %s was given up, and its end is not waited for", self.save.storage_id)
            return False
        return self.failure is None

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
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
    """Lowers the priority of this thread, and of the threads that it starts, below the training's. Linux only."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


def _settle(saves: Saves | None) -> None:
    """Waits for the save that runs, within the grace; its failure is raised when the Context is closed afterwards."""
    while saves is not None and (running := saves._running()) is not None and not saves._grace.is_over():
        running.is_over(_LOOK_INTERVAL_S)
