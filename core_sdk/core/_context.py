"""The Context: the parts of the Core API for one attempt, which are opened and closed together."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import traceback
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal, Protocol

from core_sdk._distributed import DistributedContext
from core_sdk._ground.environment import launch_directory
from core_sdk._ground.exiting import ProgramExit, last_error
from core_sdk._ground.keywords import STEPS, add_what_was_meant
from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import Alert, ClusterInfo, Ended, Outcome, check_text
from core_sdk._home import TrialFolder
from core_sdk._home.attempts.claiming import Attempt
from core_sdk._home.attempts.continuation import has_checkpoint
from core_sdk._home.attempts.definition import record_hparams
from core_sdk._home.states import SAVE_FAILED, TRY_AGAIN
from core_sdk._home.storage import Storage
from core_sdk.core._announcements import Announcements
from core_sdk.core._checkpoint import CheckpointContext
from core_sdk.core._collection import collect_at_end
from core_sdk.core._experimental import ExperimentalCoreContext
from core_sdk.core._farewells import Farewells
from core_sdk.core._notebook import NotebookCells
from core_sdk.core._preempt import PreemptContext, tell_launcher
from core_sdk.core._profiler import ProfilerContext
from core_sdk.core._searcher import SearcherContext
from core_sdk.core._train import EarlyExitReason, TrainContext
from core_sdk.errors import ChannelError, InvalidHP, RankFailedError

logger = logging.getLogger("core_sdk.core")

AlertLevel = Literal["debug", "info", "warn", "error"]
_LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
_MAX_ERROR_CHARS = 16_384
_INVALID_HP = f"{InvalidHP.__module__}.{InvalidHP.__qualname__}"


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
        *,
        attempt: Attempt,
        checkpoint: CheckpointContext,
        storage: Storage,
        distributed: DistributedContext,
        experimental: ExperimentalCoreContext,
        preempt: PreemptContext,
        profiler: ProfilerContext,
        searcher: SearcherContext,
        train: TrainContext,
        services: Sequence[Service],
        program: ProgramExit | None = None,
        announcements: Announcements | None = None,
        is_started_again: bool = False,
    ) -> None:
        """`program` is the exit of the script, if it is one. `is_started_again`: after a stop, if its status is 75."""
        self.checkpoint = checkpoint
        self.distributed = distributed
        self.experimental = experimental
        self.preempt = preempt
        self.profiler = profiler
        self.searcher = searcher
        self.train = train
        self.info = attempt.info
        self._attempt = attempt
        self._journal = attempt.journal
        self._ending = _Ending(attempt, checkpoint, storage, preempt, distributed, program, is_started_again)
        self._open = contextlib.ExitStack()
        self._services: list[Service] = [*services, preempt]
        self._is_started = False
        self._is_in_block = False
        self._all.add(self)
        ending = self._ending
        self._open.callback(lambda: distributed.close(ending.error))
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
        background. Closes every part, even if closing another one fails. Raises the failure of that save, and
        `ReportsDroppedError` if records were lost.
        """
        if self._finalizer.detach() is None or self._ending.is_foreign():
            return
        if exc_val is None:
            self._ending.note_close()
        else:
            self._ending.note(exc_val)
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
        invalid_hp = _invalid_hp(exc_val)
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


class _Ending:
    """The end of the attempt, which is recorded once."""

    def __init__(
        self,
        attempt: Attempt,
        checkpoint: CheckpointContext,
        storage: Storage,
        preempt: PreemptContext,
        distributed: DistributedContext,
        program: ProgramExit | None,
        is_started_again: bool,
    ) -> None:
        self._attempt = attempt
        self._storage = storage
        self._checkpoint = checkpoint
        self._preempt = preempt
        self._rank = distributed.rank
        self._is_chief = distributed.is_chief
        self._farewells = Farewells(distributed.channel)
        self._process = os.getpid()
        self._program = program
        self._is_started_again = is_started_again
        if program is not None:
            program.status = None  # of an exit that was caught
            program.begin(attempt.folder.path)
        # The errors of an earlier cell of a notebook, and of a handler in which the script runs; their ids only, since
        # their frames may hold a model.
        self._past_error_ids = (id(last_error()), id(sys.exception()))
        self._outcome: Outcome | None = None
        self._error_text: str | None = None
        self.error: BaseException | None = None
        """The error that the other ranks are told."""

    def is_foreign(self) -> bool:
        """Returns whether this is a forked child: the attempt belongs to the parent."""
        return os.getpid() != self._process

    def note(self, error: BaseException | None) -> None:
        """Notes the outcome of a script that leaves the Context with `error`, or without one."""
        if isinstance(error, GeneratorExit):
            self.note_exit()
            return
        if not self.is_good(error):
            self.error = error
        invalid_hp = _invalid_hp(error)
        if invalid_hp is not None:
            self._outcome, self._error_text = "invalid_hp", invalid_hp
        elif _is_interrupt(self.error):
            self._outcome = "canceled"
        elif self.error is not None:
            self._outcome, self._error_text = "error", _describe(self.error)
        else:
            self._outcome = "paused" if self._preempt.is_acknowledged else "completed"

    def is_good(self, error: BaseException | None) -> bool:
        """Returns whether a script that leaves the Context with `error` has ended well."""
        good_codes = (None, 0, TRY_AGAIN) if self._preempt.is_acknowledged else (None, 0)
        # A generator that holds the Context was closed, because nobody needs more of it.
        return error is None or isinstance(error, GeneratorExit) or _exits_with(error, good_codes)

    def note_close(self) -> None:
        """Notes the outcome of a script that calls `close()`, as in `finally:`, perhaps while an error is raised."""
        error = sys.exception()
        self.note(None if id(error) in self._past_error_ids else error)

    def note_exit(self) -> None:
        """Notes the outcome of a Context that Python closes.

        It does so at the interpreter's exit, when no variable holds the Context, or with the generator that holds it.
        """
        error = last_error()
        if id(error) in self._past_error_ids:
            error = None
        if error is None and self._program is not None and self._program.status is not None:
            error = SystemExit(self._program.status)
        self.note(error)
        if self._outcome in ("completed", "paused"):
            # The exit status of the program, if anybody sees it, tells whether it has ended well.
            self._outcome = "exited"

    def await_save(self) -> None:
        """Waits for the save in the background. A failed save becomes the error, unless there is one already."""
        try:
            self._checkpoint.close()
        except Exception as error:
            if self.error is None:
                self.note(error)
                raise
            logger.error("the checkpoint that was being stored in the background is lost", exc_info=error)
        except BaseException as error:
            # A second Ctrl-C, say.
            if self.error is None:
                self.note(error)
            raise

    def record(self) -> None:
        if self._is_chief:
            self._heed_others()
        else:
            self._farewells.say(self.error)
        self._explain_stop()
        self._attempt.journal.append(
            Ended(time=time.time(), outcome=self._outcome or "completed", error=self._error_text)
        )
        if self._attempt.writer:
            return  # launcher and job are told of the trial's end, not of this one
        if self._outcome in ("completed", "invalid_hp"):
            tell_launcher(launch_directory(), "completed")
        if self._outcome in ("completed", "paused", "invalid_hp"):
            tell_launcher(launch_directory(), f"left-{self._rank}")
        self._replace_status()

    def _replace_status(self) -> None:
        """Has the program's exit status say that it is to be started again, which Python's own would not."""
        if self._program is None or not self._preempt.is_acknowledged:
            return
        if self._outcome in ("paused", "exited") and self._is_started_again:
            self._program.replace(TRY_AGAIN, self._attempt.folder.path)
        elif (
            self.error is not None
            and self.error is self._checkpoint.failed_save
            and has_checkpoint(self._attempt.folder)
        ):
            self._program.replace_for(self.error, SAVE_FAILED)

    def _explain_stop(self) -> None:
        """Notes in the error that the ranks stopped at different steps, which errors of collectives do not say."""
        # An error of the channel names the rank that is the cause.
        if isinstance(self.error, ChannelError) or (unevenness := self._preempt.unevenness()) is None:
            return
        if self.error is None:
            logger.warning("%s", unevenness)
            return
        self.error.add_note(unevenness)
        if self._outcome == "error":
            self._error_text = _clipped(f"{self._error_text}\n{unevenness}\n")

    def collect(self) -> None:
        if self._outcome in ("completed", "exited") and not self._preempt.is_acknowledged:
            collect_at_end(self._attempt, self._storage)

    def _heed_others(self) -> None:
        """Adds the error of another rank, which often is the cause of this rank's: a lost connection, for example."""
        if self.error is None:
            self._farewells.await_all()
        failure = self._farewells.failure()
        if failure is None or self._outcome in ("invalid_hp", "canceled") or isinstance(self.error, ChannelError):
            return
        invalid_hp = _invalid_hp(failure)
        if invalid_hp is not None:
            self._outcome, self._error_text = "invalid_hp", invalid_hp
        elif _is_interrupt(failure):
            self._outcome, self._error_text = "canceled", None
        elif not _is_same(self.error, failure):
            own_text = f"{self._error_text}\n" if self._error_text else ""
            self._outcome, self._error_text = "error", _clipped(f"{own_text}{failure}\n{_headline(failure)}")


def _close_forgotten(open_parts: contextlib.ExitStack, ending: _Ending) -> None:
    if not ending.is_foreign():
        ending.note_exit()
        open_parts.close()


def _exits_with(error: BaseException, codes: Sequence[int | None]) -> bool:
    return isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)) and error.code in codes


def _invalid_hp(error: BaseException | None) -> str | None:
    """Returns the message of an `InvalidHP` that was raised on this rank or on another; else None."""
    if isinstance(error, InvalidHP):
        return str(error)
    if isinstance(error, RankFailedError) and error.error_text.partition(":")[0] == _INVALID_HP:
        return error.error_text.partition(":")[2].strip()
    return None


def _is_interrupt(error: BaseException | None) -> bool:
    """Returns whether the error is a Ctrl-C on this rank or on another."""
    if isinstance(error, RankFailedError):
        return error.error_text.partition(":")[0] == KeyboardInterrupt.__name__
    return isinstance(error, KeyboardInterrupt)


def _is_same(own: BaseException | None, failure: ChannelError) -> bool:
    """Returns whether both ranks raised the same error."""
    if own is None or not isinstance(failure, RankFailedError):
        return False
    return "".join(traceback.format_exception_only(own)).strip() == failure.error_text


def _describe(error: BaseException) -> str:
    return _clipped("".join(traceback.format_exception(error)) + _headline(error))


def _headline(error: BaseException) -> str:
    """Returns the text's last line, which lists show: it names the other rank, as its traceback does not."""
    if not isinstance(error, RankFailedError):
        return ""
    return f"\nrank {error.rank} failed: {error.error_text.rpartition(chr(10))[2]}\n"


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_ERROR_CHARS else "…" + text[-_MAX_ERROR_CHARS:]
