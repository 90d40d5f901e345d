"""The cells of a notebook: interrupting one ends the attempt of a Context that is open, as Ctrl-C ends a script."""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

logger = logging.getLogger("core_sdk.core")


class _Watched(Protocol):
    """A Context."""

    def close(self, exc_type: type[BaseException] | None = None, exc_val: BaseException | None = None) -> None: ...


class NotebookCells:
    """Watches the cells that IPython runs, until it is closed. Does nothing outside of IPython."""

    def __init__(self, context: _Watched, before_cell: Callable[[], object]) -> None:
        """`before_cell` is called as each cell begins. The kernel has then set its own handler of SIGINT."""
        self._context = weakref.ref(context)
        self._before_cell = before_cell
        self._events = _events_of_ipython()
        if self._events is not None:
            self._events.register("pre_run_cell", self._begin)
            self._events.register("post_run_cell", self._end)

    def close(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.unregister("pre_run_cell", self._begin)
            events.unregister("post_run_cell", self._end)

    def _begin(self, _: object = None) -> None:
        self._before_cell()

    def _end(self, result: Any = None) -> None:
        error, context = getattr(result, "error_in_exec", None), self._context()
        if isinstance(error, KeyboardInterrupt) and context is not None:
            logger.warning("the cell was interrupted: %r is closed, and its attempt is canceled", context)
            context.close(type(error), error)


def _events_of_ipython() -> Any:
    """Returns the events of the IPython in which this process runs the user's code; None if there is none."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    shell = get_ipython()
    return None if shell is None else shell.events
