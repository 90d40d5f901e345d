"""Watches how this program exits, since Python tells nobody the status before, nor lets it be changed at the end."""

from __future__ import annotations

import builtins
import functools
import gc
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, ClassVar


def last_error() -> BaseException | None:
    """Returns the error that has ended the program, or a cell of a notebook; None if none has."""
    return getattr(sys, "last_value", None)


class ProgramExit:
    """The exit of this program. There is one, whatever the number of its trainings.

    `sys.exit`, `exit` and `quit` are replaced by functions that note the status while somebody watches, and until the
    program's exit if that is to have another status.
    """

    _only: ClassVar[ProgramExit | None] = None

    def __init__(self) -> None:
        self.status: object = None
        """The argument of the last call of `sys.exit`, `exit` or `quit`."""
        self._process = os.getpid()
        self._num_watchers = 0
        self._replaced: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []
        """The modules and names of the replaced functions, with the originals and ours."""
        self._status_if_well_by_trial: dict[object, int] = {}
        self._status_by_error: dict[int, int] = {}
        weakref.finalize(self, self._decide)

    @classmethod
    def watched(cls) -> ProgramExit:
        """Returns the exit of this program, which is watched until as many calls of `leave`."""
        if cls._only is None:
            cls._only = cls()
        cls._only._watch()
        return cls._only

    def leave(self) -> None:
        """Ends the watching that one call of `watched` has begun."""
        self._num_watchers -= 1
        if self._num_watchers > 0 or self._status_if_well_by_trial:
            return
        while self._replaced:
            module, name, original, noting = self._replaced.pop()
            if getattr(module, name, None) is noting:  # the script may have replaced it meanwhile
                setattr(module, name, original)

    def replace(self, status: int, trial: object) -> None:
        """Makes the program exit with `status` instead of 0, unless it begins an attempt of `trial` again.

        All that Python does at its exit is done before.
        """
        self._status_if_well_by_trial[trial] = status

    def replace_for(self, error: BaseException, status: int) -> None:
        """Makes the program exit with `status` if `error` ends it."""
        self._status_by_error[id(error)] = status

    def begin(self, trial: object) -> None:
        """Begins an attempt of `trial`, whose attempts before no longer say how the program exits."""
        self._status_if_well_by_trial.pop(trial, None)

    def _watch(self) -> None:
        self._num_watchers += 1
        if self._replaced:
            return
        for module, name in ((sys, "exit"), (builtins, "exit"), (builtins, "quit")):
            if (original := getattr(module, name, None)) is not None:  # `python -S` has no `quit`
                noting = self._noting(original)
                setattr(module, name, noting)
                self._replaced.append((module, name, original, noting))

    def _noting(self, leave: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(leave)
        def leave_noted(*status: object) -> Any:
            self.status = status[0] if status else None
            return leave(*status)

        return leave_noted

    def _decide(self) -> None:
        """Decides when the interpreter exits, since only then it is known what has ended the program."""
        if os.getpid() != self._process:
            return  # a forked child
        if (error := last_error()) is not None:
            status = self._status_by_error.get(id(error), 0)
        elif self.status is None or (isinstance(self.status, int) and self.status == 0):
            status = max(self._status_if_well_by_trial.values(), default=0)
        else:
            status = 0
        if status:
            import ctypes  # which most programs do not need

            ctypes.CDLL(None).fflush(None)  # what C code has printed
            # Python empties `sys` last, its underscored names first: by then it has called and destroyed all else.
            sys.core_sdk_last_act = _LastAct(status)  # type: ignore[attr-defined]


class _LastAct:
    """Ends the process with its status when it is destroyed at the end of the interpreter."""

    def __init__(self, status: int) -> None:
        self._status = status

    def __del__(
        self,
        # All modules are gone by then.
        is_finalizing: Callable[[], bool] = sys.is_finalizing,
        collect_garbage: Callable[[], int] = gc.collect,
        end: Callable[[int], Any] = os._exit,
    ) -> None:
        if is_finalizing():
            collect_garbage()  # it may hold files that are not flushed
            end(self._status)
