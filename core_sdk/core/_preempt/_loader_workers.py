"""Lets the workers of data loaders leave a stop to their rank, which may still need their batches.

Slurm and service managers send a stop to every process of a training. A loader's worker would die of it, and its rank
of the worker's death. Therefore a worker starts with these signals blocked, and a thread of it takes them. The worker
ends when the loader says so, when its rank has ended, and when its rank sends it SIGTERM, as torch and multiprocessing
do with workers that do not end by themselves.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from core_sdk._ground.signs import SignsOfLife

_METHODS_THAT_START_WORKERS = (
    ("torch.utils.data", "DataLoader", "__iter__"),
    ("torchdata.stateful_dataloader", "StatefulDataLoader", "__iter__"),
    ("torchdata.stateful_dataloader", "StatefulDataLoader", "state_dict"),
)
_FORK_SERVER = "core_sdk.core._preempt._fork_server"
_INTERVAL_S = 0.5


class LoaderWorkerStart:
    """Prepares a worker of a loader, and calls the user's `worker_init_fn`."""

    is_received: ClassVar = False
    """Whether this process has been given one by a process that it was not forked from: it is a loader's worker."""

    def __init__(self, worker_init_fn: Callable[[int], None] | None, stops: Collection[signal.Signals]) -> None:
        self._worker_init_fn = worker_init_fn
        self._stops = stops
        self._rank_pid = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        LoaderWorkerStart.is_received = True

    def __call__(self, worker_id: int) -> None:
        if os.getpid() != self._rank_pid:  # not for workers that are threads
            signal.pthread_sigmask(signal.SIG_BLOCK, self._stops)
            threading.Thread(target=self._end_with_rank, name="core-sdk-loader-worker", daemon=True).start()
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker_id)

    def _end_with_rank(self) -> None:
        """Ends this worker when its rank has ended or sends SIGTERM. Takes all other signals."""
        import multiprocessing

        rank, parent_pid = multiprocessing.parent_process(), os.getppid()
        # Forked siblings keep the rank's side of the pipe open that shows its end; a fork server outlives the rank.
        while rank is not None and rank.is_alive() and os.getppid() == parent_pid:
            taken = signal.sigtimedwait(self._stops, _INTERVAL_S)
            if taken is not None and taken.si_signo == signal.SIGTERM and taken.si_pid == self._rank_pid:
                break
        os._exit(0)


def protect_loader_workers(stops: Collection[signal.Signals]) -> None:
    """Lets all workers that loaders of this process start from now on leave `stops` to it. Does nothing the next time.

    From then on, each batch of a loader is a sign of life of this rank, too.

    It does not import torch: call it again where torch may have been imported meanwhile.
    """
    for module, class_name, method in _METHODS_THAT_START_WORKERS:
        loader_class: Any = getattr(sys.modules.get(module), class_name, None)
        if loader_class is not None and not hasattr(getattr(loader_class, method), "protects_workers"):
            setattr(loader_class, method, _protecting(getattr(loader_class, method), stops))
            _preload_fork_server()
    batches: Any = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
    if batches is not None and not hasattr(batches.__next__, "gives_signs"):
        batches.__next__ = _giving_signs(batches.__next__)


def _giving_signs(next_batch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the method with a sign of life for each batch, also of a validation."""

    @functools.wraps(next_batch)
    def next_with_sign(batches: Any) -> Any:
        SignsOfLife.beat()
        return next_batch(batches)

    next_with_sign.gives_signs = True  # type: ignore[attr-defined]
    return next_with_sign


def _protecting(start_workers: Callable[[Any], Any], stops: Collection[signal.Signals]) -> Callable[[Any], Any]:
    import multiprocessing  # torch has imported it by now, which a script without torch need not
    from multiprocessing import resource_tracker

    @functools.wraps(start_workers)
    def start_protected(loader: Any) -> Any:
        if loader.num_workers == 0:
            return start_workers(loader)
        worker_init_fn = loader.worker_init_fn
        # The workers inherit the mask, so that no signal ends one before its thread waits for signals.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, stops)
        if (loader.multiprocessing_context or multiprocessing).get_start_method() != "fork":
            _preload_fork_server()  # the script may have chosen other modules meanwhile
            resource_tracker.ensure_running()  # it ignores SIGTERM, and inherits that SIGUSR1 is blocked
            signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # its start has unblocked SIGTERM
        loader.worker_init_fn = LoaderWorkerStart(worker_init_fn, stops)
        try:
            return start_workers(loader)
        finally:
            loader.worker_init_fn = worker_init_fn
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    start_protected.protects_workers = True  # type: ignore[attr-defined]
    return start_protected


def _preload_fork_server() -> None:
    import multiprocessing
    from multiprocessing import forkserver

    server: Any = getattr(forkserver, "_forkserver", None)  # its modules have no public name
    preloaded = getattr(server, "_preload_modules", ["__main__"])
    if _FORK_SERVER not in preloaded:
        multiprocessing.set_forkserver_preload([*preloaded, _FORK_SERVER])
