"""The names inside torch that the launchers depend on, checked when this module is imported.

torch promises none of them, and another version may rename them. So the other modules import them from here, and
`_NEEDED` lists the private ones that the agent and the rank logs use.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

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
    """Returns the requirement on torch of this package, such as `torch==2.13.*`."""
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
    "DynamicRendezvousHandler",
    "LaunchConfig",
    "LocalElasticAgent",
    "LogsDest",
    "LogsSpecs",
    "PContext",
    "RendezvousError",
    "RendezvousParameters",
    "RunResult",
    "SubprocessContext",
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
    """Raises `TorchChangedError` if this torch lacks one of the private names."""
    for cls, names in _NEEDED.items():
        for name in names.split():
            if not hasattr(cls, name) and not _sets_attribute(cls, name):
                raise TorchChangedError(f"{cls.__module__}.{cls.__name__} has no {name}")


def _sets_attribute(cls: type, name: str) -> bool:
    constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
    return any(name in each.__code__.co_names for each in constructors if hasattr(each, "__code__"))


_check()
