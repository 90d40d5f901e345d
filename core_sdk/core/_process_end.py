"""The end of a process of multiprocessing, which does not do what Python does at the exit of a script."""

from __future__ import annotations

import sys
from collections.abc import Callable

from core_sdk._ground.environment import is_of_multiprocessing


def at_process_end(call: Callable[[BaseException | None], object]) -> Callable[[], object]:
    """Arranges that a process of multiprocessing makes the call as its function ends, with the error that ends it.

    Returns a function that withdraws the call. Does nothing in other processes.
    """
    if not is_of_multiprocessing():
        return lambda: None
    from multiprocessing.util import Finalize  # slow to import, unless something else has

    # Called while the error is being raised, also if it is a `SystemExit`.
    return Finalize(None, lambda: call(sys.exception()), exitpriority=0).cancel
