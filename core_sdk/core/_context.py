"""The Context: the parts of the Core API for one attempt, which are opened and closed together."""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal, Protocol

from core_sdk._distributed import DistributedContext
from core_sdk._ground.environment import BegunTrial, is_script, launch_directory, stop_signals
from core_sdk._ground.exiting import ProgramExit
from core_sdk._ground.keywords import STEPS, add_what_was_meant
from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import Alert, ClusterInfo, check_text
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.claiming import Attempt
from core_sdk._home.attempts.definition import record_hparams
from core_sdk._home.storage import Storage
from core_sdk.core._announcements import Announcements
from core_sdk.core._checkpoint import CheckpointContext, Grace
from core_sdk.core._ending import Ending, invalid_hp_of
from core_sdk.core._experimental import ExperimentalCoreContext
from core_sdk.core._notebook import NotebookCells
from core_sdk.core._preempt import PreemptContext
from core_sdk.core._process_end import at_process_end
from core_sdk.core._profiler import ProfilerContext, UsualFigures
from core_sdk.core._resumption import Resumption
from core_sdk.core._searcher import SearcherContext
from core_sdk.core._settings import ProcessSettings
from core_sdk.core._train import EarlyExitReason, Ledger, TrainContext

logger = logging.getLogger("core_sdk.core")

AlertLevel = Literal["debug", "info", "warn", "error"]
_LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


class Service(Protocol):
    """Something that works in the background while the Context is open."""

    def start(self) -> object: ...

    def close(self) -> None: ...


class Context(OfOneProcess):
    """The parts of the Core API that a script uses, made by `init()`.

    Enter it with `with`, or call `start()` and `close()`, for example in the cells of a notebook.

    Keep it in a variable as long as its parts are used: a Context that no variable holds is closed.

    Leaving the Context ends the attempt. An exception that leaves it is recorded as the attempt's error; `InvalidHP` is
    recorded as such and turned into `SystemExit(0)`; `KeyboardInterrupt` cancels the attempt. The same holds for an
    exception on another rank: a chief that ends well waits a few seconds to learn how the others end.

    Threads may share it: what several of them report, save or delete at once is recorded, or the call raises. One
    thread at a time makes the calls that ranks make together: those of `distributed`, saves and restores of all ranks,
    `searcher.operations()`, and on several ranks `should_preempt()`.
    """

    _all: ClassVar[weakref.WeakSet[Context]] = weakref.WeakSet()

    checkpoint: CheckpointContext
    """Stores and reads checkpoints."""
    distributed: DistributedContext
    """The ranks, and their collectives."""
    experimental: ExperimentalCoreContext
    """Records which checkpoints the trial uses."""
    preempt: PreemptContext
    """Says when to stop."""
    profiler: ProfilerContext
    """Samples the machine's figures."""
    searcher: SearcherContext
    """Says how long to train."""
    train: TrainContext
    """Reports metrics."""
    info: ClusterInfo
    """The trial, its hyperparameters, and the checkpoint to go on from."""

    def __init__(
        self,
        attempt: Attempt,
        storage: Storage,
        distributed: DistributedContext,
        settings: ProcessSettings,
        ledger: Ledger,
        *,
        earlier: Mapping[str, str] = {},
        resumption: Resumption | None = None,
        services: Sequence[Service] = (),
        announcements: Announcements | None = None,
        is_started_again: bool = False,
    ) -> None:
        """`ledger` decides which reports are recorded. `is_started_again`: after a stop, if the program's status is 75.

        The Context of a writer stores no checkpoints, has no length, and is not stopped by a pause of the trial.
        `earlier` has the trial's checkpoints, as for a `CheckpointContext`.
        """
        folder, journal, is_writer = attempt.folder, attempt.journal, attempt.writer != ""
        attempts = [(folder.trial_id, attempt.number), *([] if attempt.starter is None else [attempt.starter])]
        self.info = attempt.info
        self.distributed = distributed
        self.experimental = ExperimentalCoreContext(journal)
        figures_s = None if is_writer or not journal.is_kept else settings.figures_s
        usual = None if figures_s is None else UsualFigures(journal, distributed.local_rank, figures_s)
        self.profiler = profiler = ProfilerContext(
            journal, distributed.local_rank, num_ranks=distributed.size, usual=usual
        )
        self.train = TrainContext(
            folder=folder,
            journal=journal,
            ledger=ledger,
            distributed=distributed,
            tensorboard_mode=settings.tensorboard_mode,
            is_home_shared=attempt.is_home_shared,
            resumption=resumption,
        )
        self.preempt = preempt = PreemptContext(
            home=Home(folder.home_root),
            attempts=() if is_writer else attempts,
            journal=journal,
            distributed=distributed,
            preempt_mode=settings.preempt_mode,
            deadline=settings.stop_at,
            launch_directory=None if is_writer else launch_directory(),
            stop_signals=stop_signals(),
            clouds=settings.clouds,
            is_of_script=is_script(),
        )
        self.checkpoint = CheckpointContext(
            storage,
            distributed,
            journal,
            Grace(settings.grace_s, lambda: preempt.stop_known_at),
            folder,
            attempt.info,
            earlier,
            resumption,
            is_read_only=is_writer,
        )
        self.searcher = SearcherContext(
            distributed=distributed,
            train=self.train,
            journal=journal,
            preempt=preempt,
            folder=folder,
            max_length=None if is_writer else attempt.record.max_length,
        )
        self._attempt = attempt
        self._journal = journal
        program = ProgramExit.watched() if is_script() else None
        self._open = contextlib.ExitStack()
        if program is not None:
            self._open.callback(program.leave)
        self._ending = Ending(attempt, self.checkpoint, storage, preempt, distributed, program, is_started_again)
        self._services: list[Service] = [*services, preempt, *([usual] if usual else [])]
        self._is_started = False
        self._is_in_block = False
        self._all.add(self)
        ending = self._ending
        self._open.callback(lambda: distributed.close(ending.error))
        if not is_writer:
            self._open.callback(BegunTrial(self.info.trial.trial_seed, self.info.trial.setback).close)
        # SIGTERM is released late, since a second one must not kill the process before the end is recorded.
        self._open.callback(preempt.close)
        self._open.callback(storage.close)
        if attempt.alive is not None:
            self._open.callback(attempt.alive.release)
            # While the attempt still counts as running, so that nobody can resume the trial meanwhile.
            self._open.callback(ending.collect)
        self._open.callback(attempt.journal.close)
        for service in services:
            self._open.callback(service.close)
        if announcements is not None:
            self._open.callback(announcements.end)
        self._open.callback(self._ending.record)
        self._open.callback(profiler.off)
        # The save ends first, while everything still works and the outcome is not decided.
        self._open.callback(self._ending.await_save)
        self._open.callback(NotebookCells(self, preempt.catch_interrupts).close)
        # Closes a Context that was left open, at the interpreter's exit or when no variable holds it any more.
        self._finalizer = weakref.finalize(self, _close_forgotten, self._open, self._ending)
        end = weakref.WeakMethod(self._end_with_process)
        self._open.callback(at_process_end(lambda error: (method := end()) and method(error)))

    @classmethod
    def current(cls) -> Context | None:
        """Returns the Context that this process has open, or None. Raises `RuntimeError` if there are several."""
        found = [context for context in cls._all if context._finalizer.alive]
        if len(found) > 1:
            raise RuntimeError(f"{' and '.join(map(repr, found))} are open: say which one is meant")
        return found[0] if found else None

    @classmethod
    def close_left(cls, trial: TrialFolder, writer: str = "") -> None:
        """Closes this process's Context of the trial, or of a writer of it, if a cell of a notebook has left it open.

        It is not closed within a `with` block.
        """
        for context in list(cls._all):
            if context._attempt.writer == writer and context._is_left_open(trial):
                logger.info("%r was still open, and is closed", context)
                context._finalizer()

    def _is_left_open(self, trial: TrialFolder) -> bool:
        return self._attempt.folder.path == trial.path and not self._is_in_block and self._finalizer.alive

    def start(self) -> None:
        """Begins to listen for stops. Raises `RuntimeError` the second time."""
        if self._is_started:
            raise RuntimeError("the Context was started before; call init() for a new one")
        self._is_started = True
        for service in self._services:
            service.start()

    def close(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Ends the attempt; does nothing the second time, and in a forked child.

        Without arguments, an error that is being raised, as in `finally:`, is the attempt's. Waits for a save in the
        background. Closes every part, even if closing another one fails, and gives back what was opened and replaced:
        files, threads, handlers of signals, `sys.exit`. Raises the failure of that save, and
        `ReportsDroppedError` if records were lost.
        """
        if self._finalizer.detach() is None or self._ending.is_foreign():
            return
        if exc_val is None:
            self._ending.note_close()
        else:
            self._ending.note(exc_val)
        self._open.close()

    def _end_with_process(self, error: BaseException | None) -> None:
        """Ends the attempt as a process of multiprocessing ends, with the error that ends its function, if any."""
        if self._finalizer.detach() is not None and not self._ending.is_foreign():
            self._ending.note_exit(error)
            self._open.close()

    def __enter__(self) -> Context:
        self.start()
        self._is_in_block = True
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if isinstance(exc_val, TypeError):
            add_what_was_meant(exc_val, TrainContext, STEPS)
        invalid_hp = invalid_hp_of(exc_val)
        if invalid_hp is not None:
            logger.info("these hyperparameters cannot be trained: %s", invalid_hp)
            self.train.report_early_exit(EarlyExitReason.INVALID_HP)
        try:
            self.close(exc_type, exc_val, exc_tb)
        except Exception:
            if self._ending.is_good(exc_val):
                raise
            # The script's own error is more important.
            logger.exception("closing the Context failed")
        if invalid_hp is not None:
            raise SystemExit(0) from exc_val

    def __repr__(self) -> str:
        trial, ranks = self.info.trial, self.distributed
        of_ranks = f", rank {ranks.rank} of {ranks.size}" if ranks.size > 1 else ""
        writer = f", writer {self._attempt.writer!r}" if self._attempt.writer else ""
        return f"<Context of trial {trial.trial_id}, attempt {self._attempt.number}{of_ranks}{writer}>"

    def __getattr__(self, name: str) -> Any:
        """Raises `AttributeError`, which says where a name is that was looked for here."""
        parts = () if name.startswith("_") else ("train", "checkpoint", "preempt", "distributed", "searcher")
        meant = [f"{part}.{name}" for part in parts if hasattr(self.__dict__.get(part), name)]
        if name == "log":
            meant = ["train.report_training_metrics(steps_completed, metrics)"]
        hint = f"; did you mean {meant[0]}?" if meant else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def record_hparams(self, hparams: Any, *, update: bool = False) -> None:
        """Records hyperparameters that are only known after `init()`, unless the trial already has some.

        With `update` they are added to the trial's, and replace values of the same names, but for what a search or a
        command line has chosen. A value that JSON cannot keep is recorded as text. Does nothing on ranks other
        than the chief.
        """
        if self.distributed.is_chief:
            with self._journal.lock:  # for its other threads, which may record some, too
                record_hparams(self._attempt.folder, hparams, is_update=update)

    def alert(
        self, title: str | None = None, description: str | None = None, level: AlertLevel | None = "info"
    ) -> None:
        """Records something that a person should see. The level's case is ignored; other levels are a `ValueError`.

        Does nothing on ranks other than the chief.
        """
        name = str(level or "info").lower()
        if name not in _LEVELS:
            raise ValueError(f"the alert level is {level!r}; it must be one of {', '.join(_LEVELS)}")
        title = check_text("the alert's title", title or "")
        description = check_text("the alert's description", description or "")
        if self.distributed.is_chief:
            logger.log(_LEVELS[name], "alert: %s: %s", title, description)
        self._journal.append(Alert(time=time.time(), title=title, description=description, level=name))


def _close_forgotten(open_parts: contextlib.ExitStack, ending: Ending) -> None:
    if not ending.is_foreign():
        ending.note_exit()
        open_parts.close()
