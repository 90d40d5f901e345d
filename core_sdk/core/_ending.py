"""Records once how an attempt ends, from the script's end, its exit status and the other ranks."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence

from core_sdk._distributed import DistributedContext
from core_sdk._ground.environment import launch_directory
from core_sdk._ground.error_lines import described, error_line
from core_sdk._ground.exiting import ProgramExit, last_error
from core_sdk._ground.records import Ended, Outcome
from core_sdk._home.attempts.claiming import Attempt
from core_sdk._home.attempts.continuation import has_checkpoint
from core_sdk._home.states import SAVE_FAILED, TRY_AGAIN
from core_sdk._home.storage import Storage
from core_sdk.core._checkpoint import CheckpointContext
from core_sdk.core._collection import collect_at_end
from core_sdk.core._farewells import Farewells
from core_sdk.core._preempt import PreemptContext, tell_launcher
from core_sdk.errors import ChannelError, InvalidHP, RankFailedError

logger = logging.getLogger("core_sdk.core")

_MAX_ERROR_CHARS = 16_384
_INVALID_HP = f"{InvalidHP.__module__}.{InvalidHP.__qualname__}"


class Ending:
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
        invalid_hp = invalid_hp_of(error)
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

    def note_exit(self, error: BaseException | None = None) -> None:
        """Notes the outcome of a Context that Python closes.

        It does so at the interpreter's exit, when no variable holds the Context, with the generator that holds it, or
        at the end of a process of multiprocessing, whose function has ended with `error`.
        """
        error = error or last_error() or _dropped_error()
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
        has_left = self._outcome in ("completed", "paused", "invalid_hp")
        tell_launcher(launch_directory(), f"left-{self._rank}", is_true=has_left)
        self._replace_status()

    def _replace_status(self) -> None:
        """Makes the program's exit status say that it is to be started again, which Python's own would not."""
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
        invalid_hp = invalid_hp_of(failure)
        if invalid_hp is not None:
            self._outcome, self._error_text = "invalid_hp", invalid_hp
        elif _is_interrupt(failure):
            self._outcome, self._error_text = "canceled", None
        elif not _is_same(self.error, failure):
            own_text = f"{self._error_text}\n" if self._error_text else ""
            self._outcome, self._error_text = "error", _clipped(f"{own_text}{failure}\n{_headline(failure)}")


def _dropped_error() -> BaseException | None:
    """Returns the error of a task in a pool of processes, whose worker drops the frames, and so the task's Context."""
    error = sys.exception()
    return error if error is not None and error.__traceback__ is None else None


def _exits_with(error: BaseException, codes: Sequence[int | None]) -> bool:
    return isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)) and error.code in codes


def invalid_hp_of(error: BaseException | None) -> str | None:
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
    """Returns the error's traceback. The last line is what lists show: for another rank's error, it names the rank."""
    if not isinstance(error, RankFailedError):
        return _clipped(described(error))
    return _clipped("".join(traceback.format_exception(error)) + _headline(error))


def _headline(error: BaseException) -> str:
    if not isinstance(error, RankFailedError):
        return ""
    return f"\nrank {error.rank} failed: {error_line(error.error_text) or error.error_text}\n"


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_ERROR_CHARS else "…" + text[-_MAX_ERROR_CHARS:]
