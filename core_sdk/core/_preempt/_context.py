"""`core_context.preempt`, which tells the script when it should stop so that it can be resumed later."""

from __future__ import annotations

import datetime
import enum
import functools
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from core_sdk._distributed import DistributedContext
from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import StopAcknowledged
from core_sdk._ground.signs import SignsOfLife
from core_sdk._home import Home
from core_sdk._home.journal import Journal
from core_sdk.core._preempt._agreement import StopAgreement
from core_sdk.core._preempt._clouds import Cloud
from core_sdk.core._preempt._interrupts import INTERRUPT, InterruptHook
from core_sdk.core._preempt._loader_workers import protect_loader_workers
from core_sdk.core._preempt._main_thread import MainThread, is_main_thread
from core_sdk.core._preempt._signal_hook import BlockedSignal, SignalHook, is_blocked
from core_sdk.errors import RecordDamagedError

if TYPE_CHECKING:
    from core_sdk.core._preempt._notices import NoticeListener

logger = logging.getLogger("core_sdk.preempt")

_POLL_INTERVAL_S = 0.25
# Longer than most steps take, so that ranks that are only late are not reported.
_LATE_S = 30.0


class PreemptMode(enum.Enum):
    """The ranks that call `should_preempt()`, and how they come to one answer."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class PreemptContext(OfOneProcess):
    """The stop flag. It is set by `core-sdk trial pause`, and on any rank by a signal, a deadline or a notice that the
    machine is about to end. It is never reset.

    SIGTERM and the first Ctrl-C are caught from the first `should_preempt()` on, whichever thread calls it. A script
    that never calls it is ended by them. The second Ctrl-C raises `KeyboardInterrupt`.
    """

    _program_stop: ClassVar[tuple[int, str] | None] = None
    """The process that was asked by a signal to stop, and the source of that stop."""

    def __init__(
        self,
        *,
        home: Home,
        attempts: Sequence[tuple[int, int]],
        journal: Journal,
        distributed: DistributedContext,
        preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
        deadline: float | None = None,
        launch_directory: Path | None = None,
        stop_signals: Sequence[signal.Signals] = (signal.SIGTERM,),
        clouds: Sequence[Cloud] = (),
        is_of_script: bool = False,
    ) -> None:
        """`attempts` are those whose pause is a stop, each as the trial's id and the attempt's number.

        `deadline` is a time of `time.monotonic()`; `launch_directory` tells the launcher how the training ended.
        In a script a signal is meant for all of it: it also stops trainings that begin later in this process.
        The first rank of each node asks `clouds` for notices of its machine's end.
        """
        self._home = home
        self._attempts = attempts
        self._journal = journal
        self._distributed = distributed
        self._mode = PreemptMode(preempt_mode)
        self._deadline = deadline
        self._launch_directory = launch_directory
        self._num_calls = 0
        self._is_quiet = False
        self._on_step: Callable[[], None] | None = None
        self.is_acknowledged = False
        """Whether the script knows that it should stop: if it then ends well, the attempt counts as paused."""
        self.stop_known_at: float | None = None
        """The time at which this rank first heard of the stop, by `time.monotonic()`."""
        self._is_started = False
        self._stop_signals = stop_signals
        self._uncaught_signals = list(stop_signals)
        self._has_warned_of_uncaught = False
        self._main_thread: MainThread | None = None
        self._hooks: list[SignalHook | BlockedSignal] = []
        self._clouds = clouds
        self._listener: NoticeListener | None = None
        self._is_tracker_away = False
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self._is_caught_by_chief = False
        self._is_of_script = is_of_script
        self._interrupts = InterruptHook(self._want_for_program)
        self._agreement = StopAgreement(
            distributed.channel,
            counts_calls=self._mode is PreemptMode.WorkersAskChief,
            num_calls=lambda: self._num_calls,
            on_news=self._look_up,
            on_caught=self._heed_chief,
        )

    def start(self) -> PreemptContext:
        """Begins to listen for stops. Raises `RuntimeError` the second time."""
        if self._is_started:
            raise RuntimeError("PreemptContext was started before")
        self._is_started = True
        self._main_thread = MainThread()
        protect_loader_workers(self._stop_signals)
        if self._is_of_script and self._program_stop is not None and self._program_stop[0] == os.getpid():
            self._agreement.want(self._program_stop[1])
        self.catch_interrupts()
        if self._distributed.is_chief or self._deadline is not None:
            self._watcher = threading.Thread(target=self._watch, name="core-sdk-preempt", daemon=True)
            self._watcher.start()
        if self._mode is PreemptMode.ChiefOnly and not self._distributed.is_chief:
            # This rank never asks: a signal here is a stop if the chief asks.
            self._catch_signals(lambda: self._is_caught_by_chief)
        if self._clouds and self._distributed.is_local_chief:
            self._listen()
        return self

    def catch_interrupts(self) -> None:
        """Lets the first Ctrl-C be a stop. The kernel of a notebook undoes this before each cell."""
        if self._is_started and not self._closing.is_set():
            self._interrupts.install()

    def close(self) -> None:
        """Restores the handlers of signals; does nothing the second time."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join(timeout=5)
        if self._listener is not None:
            self._listener.close()
        self._agreement.leave()
        self._agreement.finish()
        if self._main_thread is not None:
            self._main_thread.close()
        self._interrupts.remove()
        while self._hooks:
            self._hooks.pop().remove(self._agreement.source)

    def __enter__(self) -> PreemptContext:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Returns whether the script should save a checkpoint and end; cheap enough for every step.

        In mode WorkersAskChief all ranks must call it equally often, and all get True at the same call. The ranks do
        not communicate until a stop is asked for, and even then no rank waits for another rank's script. In mode
        WorkersAskMaster each rank gets True at its next call. In mode ChiefOnly only the chief calls it.

        With `auto_ack`, returning True also acknowledges: if the attempt then ends well, it counts as paused. Raises
        `RuntimeError` before `start()`, and in mode ChiefOnly on other ranks.
        """
        self._num_calls += 1
        SignsOfLife.beat()
        if self._is_quiet:
            return False
        return self._look(auto_ack)

    def acknowledge_preemption_signal(self) -> None:
        """Says that the script is going to stop, for scripts that ask with `auto_ack=False`."""
        source = self._agreement.source
        if source is not None and not self.is_acknowledged:
            self.is_acknowledged = True
            self._journal.append(StopAcknowledged(time=time.time(), source=source))
            tell_launcher(self._launch_directory, "stopped")

    @property
    def on_step(self) -> Callable[[], None] | None:
        """The function called at each `should_preempt()` of this rank, for a tool that looks at steps; usually None."""
        return self._on_step

    @on_step.setter
    def on_step(self, call: Callable[[], None] | None) -> None:
        self._on_step = call
        self._is_quiet = False

    @property
    def is_asked(self) -> bool:
        """Whether this rank's script has called `should_preempt()`, and so ends itself when it should stop."""
        return self._num_calls > 0

    @property
    def is_stop_agreed(self) -> bool:
        """Whether this rank knows that all ranks are to stop."""
        return self._agreement.source is not None

    @property
    def stop_source(self) -> str | None:
        """The source that asked for the stop, once this rank knows that all ranks are to stop; else None."""
        return self._agreement.source

    def ask_to_stop(self, source: str) -> None:
        """Asks all ranks to stop, as a signal does; any rank may call. `source` says who asks."""
        self._agreement.want(source)

    def acknowledge_agreed_stop(self) -> None:
        """Acknowledges a stop of which the chief has told this rank. Waits a few seconds at most for the agreement."""
        self._agreement.await_agreement()
        self.acknowledge_preemption_signal()

    def _look(self, auto_ack: bool) -> bool:
        if not self._is_started:
            raise RuntimeError(
                "should_preempt() was called before the Context was entered. Use `with core_sdk.core.init() as "
                "core_context:`; in a notebook, keep it in a variable, and call core_context.start() after init()"
            )
        if self._mode is PreemptMode.ChiefOnly and not self._distributed.is_chief:
            raise RuntimeError("in PreemptMode.ChiefOnly only the chief calls should_preempt()")
        if self._uncaught_signals:
            self._catch_stops()
        self._is_quiet = not self._uncaught_signals and self._on_step is None
        if self._on_step is not None:
            self._on_step()
        if self._agreement.is_calm:
            return False
        self._is_quiet = False  # after looking at the agreement, so that a stop in between is not overlooked
        if not self._agreement.is_reached(self._num_calls):
            return False
        if auto_ack:
            self.acknowledge_preemption_signal()
        return True

    def _catch_stops(self) -> None:
        protect_loader_workers(self._stop_signals)  # torch may have been imported since `start()`
        self._interrupts.heed()
        self._catch_signals(lambda: True)
        if self._mode is PreemptMode.ChiefOnly:
            self._agreement.announce_catching()

    def _heed_chief(self) -> None:
        """Lets signals on this rank count, since the chief asks whether to stop (mode ChiefOnly)."""
        self._is_caught_by_chief = True
        self._interrupts.heed()

    def _catch_signals(self, is_wanted: Callable[[], bool]) -> None:
        for number in list(self._uncaught_signals):
            hook = BlockedSignal if is_blocked(number) else SignalHook
            catch = functools.partial(self._catch, hook, number, is_wanted)
            is_here = hook is BlockedSignal or is_main_thread()
            if not is_here and (self._main_thread is None or not self._main_thread.is_reachable):
                self._warn_of_uncaught(number)
                continue
            try:
                self._uncaught_signals.remove(number)
            except ValueError:
                continue  # another thread catches it
            if is_here:
                catch()
            elif self._main_thread is not None:
                self._main_thread.run(catch)

    def _catch(
        self, hook: type[BlockedSignal | SignalHook], number: signal.Signals, is_wanted: Callable[[], bool]
    ) -> None:
        self._hooks.append(hook(number, self._want_for_program, is_wanted))

    def _warn_of_uncaught(self, number: signal.Signals) -> None:
        if not self._has_warned_of_uncaught:
            logger.warning(
                "%s is not caught, and ends this process at once: only the main thread can catch it. Enter the Context "
                "in the main thread, or call should_preempt() there once, on all ranks alike",
                number.name,
            )
        self._has_warned_of_uncaught = True

    def _listen(self) -> None:
        from core_sdk.core._preempt._notices import NoticeListener  # HTTP, which few trainings need

        self._listener = NoticeListener(self._clouds, self._want_for_program)

    def _want_for_program(self, source: str) -> None:
        if self._is_of_script:
            PreemptContext._program_stop = os.getpid(), source
        self._agreement.want(source)

    def _look_up(self) -> None:
        if self.stop_known_at is None:
            self.stop_known_at = time.monotonic()
        self._is_quiet = False

    def unevenness(self) -> str | None:
        """Describes how often each rank has called, if that keeps the ranks from stopping together; else None."""
        return self._agreement.unevenness()

    def _watch(self) -> None:
        self._watch_for_stop()
        if self._agreement.wanted_by == INTERRUPT:
            logger.warning("stopping at the next step; Ctrl-C again ends the training at once")
        elif self._agreement.wanted_by is not None and not self.is_acknowledged:
            logger.warning("stopping at the next step, as asked by %s", self._agreement.wanted_by)
        while self._distributed.size > 1 and not self._closing.wait(_LATE_S):
            if (unevenness := self._agreement.unevenness()) is not None:
                logger.warning("%s", unevenness)
                return

    def _watch_for_stop(self) -> None:
        while self._agreement.wanted_by is None and self._agreement.source is None:
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._agreement.want("deadline")
                return
            if self._distributed.is_chief and (source := self._requested_by()) is not None:
                self._agreement.want(source)
                return
            if self._closing.wait(_POLL_INTERVAL_S):
                return
            if self._main_thread is not None:
                self._main_thread.wake()

    def _requested_by(self) -> str | None:
        try:
            requests = [self._home.folder(trial_id).read_stop_request(attempt) for trial_id, attempt in self._attempts]
        except RecordDamagedError:
            return "stop file"  # the file's presence is the request
        except OSError as error:
            if not self._is_tracker_away:
                logger.warning("`core-sdk trial pause` is not heard: %s. SIGTERM and the deadline still work", error)
            self._is_tracker_away = True
            return None
        self._is_tracker_away = False
        return next((request.source for request in requests if request is not None), None)


def tell_launcher(launch_directory: Path | None, word: str, *, is_true: bool = True) -> None:
    """Tells the launcher how the training ended, by a file in its directory: `stopped`, `completed`, `left-RANK`.

    What was said of an earlier training of this process is taken back if it is not true of this one.
    """
    if launch_directory is None:
        return
    try:
        if is_true:
            (launch_directory / word).touch()
        else:
            (launch_directory / word).unlink(missing_ok=True)
    except OSError as error:
        logger.warning("the launcher will not know that the training is %s: %s", word, error)


def monotonic_deadline(deadline: float | datetime.timedelta | datetime.datetime | None) -> float | None:
    """Converts seconds from now, a timedelta from now, or a moment to a time of `time.monotonic()`."""
    if deadline is None:
        return None
    if isinstance(deadline, datetime.datetime):
        deadline = deadline - datetime.datetime.now(deadline.tzinfo)
    try:
        seconds = deadline.total_seconds() if isinstance(deadline, datetime.timedelta) else float(deadline)
    except ValueError:
        wanted = "a number of seconds, a timedelta or a datetime"
        raise TypeError(f"deadline is {deadline!r}; it must be {wanted}") from None
    if math.isnan(seconds):
        raise ValueError("deadline is NaN; it must be a number of seconds")
    return time.monotonic() + seconds
