"""Metrics that are never lost, checkpoints that are whole or absent, pause and resume, for your own training scripts.

`import core_sdk as det` serves a script that was written for `import determined as det`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from core_sdk import errors
from core_sdk._ground.version import __version__
from core_sdk.errors import InvalidHP

if TYPE_CHECKING:
    from core_sdk import client, core, experimental, integrations, loop, media, pytorch, search, searcher, sgd, train
    from core_sdk._ground.environment import get_cluster_info
    from core_sdk._ground.importing import import_from_path
    from core_sdk._ground.records import ClusterInfo, TrialInfo
    from core_sdk.core import Logger

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
"""A format for `logging.basicConfig(format=…)`, which tools that read logs understand."""

__all__ = [
    "LOG_FORMAT",
    "ClusterInfo",
    "InvalidHP",
    "Logger",
    "TrialInfo",
    "__version__",
    "client",
    "core",
    "errors",
    "experimental",
    "get_cluster_info",
    "import_from_path",
    "integrations",
    "loop",
    "media",
    "pytorch",
    "search",
    "searcher",
    "sgd",
    "train",
]

# Loaded on first use, so that `import core_sdk` costs next to nothing.
_MODULES = frozenset(
    {
        "client",
        "core",
        "experimental",
        "integrations",
        "loop",
        "media",
        "pytorch",
        "search",
        "searcher",
        "sgd",
        "train",
        "util",
    }
)
_NAMES = {
    "ClusterInfo": "core_sdk._ground.records",
    "Logger": "core_sdk.core",
    "TrialInfo": "core_sdk._ground.records",
    "get_cluster_info": "core_sdk._ground.environment",
    "import_from_path": "core_sdk._ground.importing",
}


_MEANT = {"init": "core.init", "Context": "core.Context", "State": "loop.State", "resumable": "loop.resumable"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"core_sdk.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    meant = f"; did you mean core_sdk.{_MEANT[name]}?" if name in _MEANT else ""
    raise AttributeError(f"module 'core_sdk' has no attribute {name!r}{meant}")


def __dir__() -> list[str]:
    return sorted(__all__)
