"""Workers on a Ray cluster: one actor of Ray Core for each, in a placement group.

An actor only holds the worker's place and its resources. The worker is a process that the actor starts, as a local one
is: so its death has a cause, its output a rank, and its main thread is the function's, as on one machine. Ray Train is
not used.
"""

from __future__ import annotations

from core_sdk.errors import MissingDependencyError

try:
    import ray
except ImportError as error:
    raise MissingDependencyError("ray", "ray", "RayEngine") from error

from core_sdk._execution.workers.ray._cluster import NodeState, RayCluster, Strategy, reason_of
from core_sdk._execution.workers.ray._engine import RayEngine
