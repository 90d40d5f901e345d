"""Keeps a script's fork server and its loader's workers from dying of a stop. Only the fork server imports this.

Signals that stop are blocked in the server, and in what it forks until multiprocessing has received what the process
is for. Only a loader's worker keeps them blocked. All others then hear them as without this module.
"""

from __future__ import annotations

import signal
from multiprocessing import util

from core_sdk.core._preempt._loader_workers import LoaderWorkerStart

# A server that a loader starts has inherited the blocked signals.
_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})


def _heed_stops(start: type[LoaderWorkerStart]) -> None:
    if not start.is_received:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask - {signal.SIGTERM})


util.register_after_fork(LoaderWorkerStart, _heed_stops)
