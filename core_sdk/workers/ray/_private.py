"""The private names of Ray that we need."""

from __future__ import annotations

from collections.abc import Mapping

import ray

from core_sdk.errors import RayClusterError


def free_resources_by_node() -> Mapping[str, Mapping[str, float]]:
    """Returns the resources of each node that nobody uses, by the node's id. Blocks. Raises `RayClusterError`.

    Ray's public functions have the sum over all nodes only.
    """
    try:
        from ray._private.state import available_resources_per_node
    except ImportError as error:
        raise RayClusterError(None, f"Ray {ray.__version__} cannot say what is free on each node: {error}") from error
    free: Mapping[str, Mapping[str, float]] = available_resources_per_node()
    return free
