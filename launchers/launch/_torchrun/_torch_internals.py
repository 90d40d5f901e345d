"""The names inside torch that the launchers depend on, checked when this module is imported.

torch promises none of them, and another version may rename them. So they are used in this module only; the others use
`TorchAgent` and what they import from here.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

import torch

from launch._command_line import CommandError


class TorchChangedError(CommandError):
    """This torch lacks a name that the launchers depend on."""

    def __init__(self, missing: str) -> None:
        super().__init__(
            f"the launchers do not work with torch {torch.__version__}, which has changed inside: {missing}. "
            f"Install a version that they were tested with: pip install '{_supported_torch()}'"
        )


def _supported_torch() -> str:
    """As the package's own requirements name it."""
    try:
        requirements = requires("core-sdk") or []
    except PackageNotFoundError:  # run from a folder in PYTHONPATH
        requirements = []
    return next((each for each in requirements if re.match(r"torch\b", each)), "torch==2.13.*")


try:
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, PContext, SubprocessContext
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
    from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousParameters, registry
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
    from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
    from torch.distributed.launcher.api import LaunchConfig
    from torch.distributed.run import config_from_args, get_args_parser
except ImportError as error:
    raise TorchChangedError(str(error)) from error

__all__ = [
    "LaunchConfig",
    "LogsDest",
    "LogsSpecs",
    "RendezvousError",
    "RendezvousParameters",
    "RunResult",
    "TorchAgent",
    "TorchChangedError",
    "WorkerGroup",
    "WorkerSpec",
    "WorkerState",
    "config_from_args",
    "get_args_parser",
    "parse_rendezvous_endpoint",
    "registry",
]

# Methods, and attributes that the constructors set.
_NEEDED: dict[type, str] = {
    LocalElasticAgent: "_rendezvous _start_workers _monitor_workers _stop_workers _shutdown "
    "_exit_barrier_timeout _pcontext _remaining_restarts _worker_group",
    LogsSpecs: "reify",
    DynamicRendezvousHandler: "_bootstrap_store_info",
    SubprocessContext: "subprocess_handlers",
    SubprocessHandler: "_stderr _stdout",
}


def _check() -> None:
    """Raises `TorchChangedError`."""
    for cls, names in _NEEDED.items():
        for name in names.split():
            if not hasattr(cls, name) and not _sets_attribute(cls, name):
                raise TorchChangedError(f"{cls.__module__}.{cls.__name__} has no {name}")


def _sets_attribute(cls: type, name: str) -> bool:
    constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
    return any(name in each.__code__.co_names for each in constructors if hasattr(each, "__code__"))


_check()


class TorchAgent(LocalElasticAgent):
    """torch's agent, with names of our own for what is private there.

    The nodes meet before each start of the ranks. `before_stop` comes before each restart and after a failure,
    `before_reaping` after it and at the end.
    """

    @property
    def restarts_left(self) -> int:
        return self._remaining_restarts

    @restarts_left.setter
    def restarts_left(self, number: int) -> None:
        self._remaining_restarts = number

    @property
    def group(self) -> WorkerGroup:
        return self._worker_group

    def wait_for_others(self, timeout_s: float) -> None:
        """For at least so long, after this node's ranks have ended well."""
        self._exit_barrier_timeout = max(self._exit_barrier_timeout, timeout_s)

    @abstractmethod
    def before_meeting(self) -> None: ...

    @abstractmethod
    def after_meeting(self, group: WorkerGroup) -> None: ...

    @abstractmethod
    def before_start(self) -> None: ...

    @abstractmethod
    def after_start(self, group: WorkerGroup, pids: dict[int, int]) -> None:
        """`pids` by local rank."""

    @abstractmethod
    def monitor(self, group: WorkerGroup) -> RunResult:
        """The state of the ranks. Called repeatedly while they run."""

    @abstractmethod
    def before_stop(self, group: WorkerGroup) -> None: ...

    @abstractmethod
    def before_reaping(self) -> None: ...

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        self.before_meeting()
        handler = worker_group.spec.rdzv_handler
        if isinstance(handler, DynamicRendezvousHandler):
            # torch tells only in the first round where the ranks' store is. After a node has come or gone a new store
            # is needed; it is also free of what the ranks of the last round wrote.
            handler._bootstrap_store_info = None
        super()._rendezvous(worker_group)
        self.after_meeting(worker_group)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self.before_start()
        pids: dict[int, Any] = super()._start_workers(worker_group)
        _close_write_ends(self._pcontext)
        self.after_start(worker_group, pids)
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        return self.monitor(worker_group)

    # The other arguments of these two differ between torch's versions.
    def _stop_workers(self, worker_group: WorkerGroup, *more: Any, **named: Any) -> None:
        self.before_stop(worker_group)
        super()._stop_workers(worker_group, *more, **named)

    def _shutdown(self, *more: Any, **named: Any) -> None:
        self.before_reaping()
        # Only reaps the ranks, and ends what torch has running beside them.
        super()._shutdown(*more, **named)


def _close_write_ends(ranks: PContext | None) -> None:
    """torch keeps the writing ends of the ranks' pipes open, and the pipes would never come to their end."""
    if not isinstance(ranks, SubprocessContext):
        raise TypeError(f"torch started the ranks as {type(ranks).__name__}, where processes were asked for")
    for handler in ranks.subprocess_handlers.values():
        for file in filter(None, (handler._stdout, handler._stderr)):
            file.close()
