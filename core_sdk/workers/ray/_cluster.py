"""The Ray cluster: this program's connection to it, and the room that it has for workers."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import ray

from core_sdk.errors import RayClusterError

with contextlib.suppress(ImportError):
    # Ray would import them when the program ends, and they execute text. Python then forgets that a Ctrl-C has ended
    # the program, whose exit status would be 1.
    import ray.autoscaler.v2.utils
    import ray.dag.compiled_dag_node

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Resources = Mapping[str, float]

_OLDEST_VERSION = (2, 60)
# How long a cluster may take for an answer. Ray itself waits for a minute, and then ends the program.
_ANSWER_S = 10.0


class Cluster:
    """Connected from construction on. Never shut down: the connection is the program's, and Ray ends it with it."""

    def __init__(self, address: str | None, namespace: str | None = None) -> None:
        """Names of actors are looked up in the `namespace`. Raises `RayClusterError`."""
        if _version() < _OLDEST_VERSION:
            raise RayClusterError(address, f'ray {ray.__version__} is too old: pip install "core-sdk[ray]"')
        if not ray.is_initialized():
            try:
                _check_somebody_listens(address)
                ray.init(
                    address,
                    namespace=namespace,
                    logging_level=logging.WARNING,
                    include_dashboard=None if address else False,
                )
            except (RuntimeError, OSError, ValueError, ray.exceptions.RayError) as error:
                raise RayClusterError(address, reason_of(error)) from error
        self._address = address or ray.get_runtime_context().gcs_address
        self._job = ray.get_runtime_context().get_job_id()

    @property
    def is_connected(self) -> bool:
        """False once the program has called `ray.shutdown()`. Does not ask the cluster."""
        return bool(ray.is_initialized() and ray.get_runtime_context().get_job_id() == self._job)

    def why_unusable(self) -> str | None:
        """Why nothing can be asked of the cluster any more; None if it answers. Waits some seconds for an answer."""
        if not self.is_connected:
            return "this program has ended its connection to it by ray.shutdown()"
        return None if ends_in_time(ray.nodes) else "it does not answer any more"

    def check(self) -> None:
        """Raises `RayClusterError` if nothing can be asked of the cluster any more."""
        if reason := self.why_unusable():
            raise RayClusterError(self._address, reason)

    def nodes(self) -> list[Resources]:
        """What each node that lives has, free or not."""
        return [node["Resources"] for node in ray.nodes() if node["Alive"]]

    def free(self) -> Resources:
        """What is free on all nodes together."""
        return dict(ray.available_resources())


def room(demand: Resources, strategy: Strategy, nodes: Sequence[Resources]) -> float:
    """How many workers of this demand these nodes have room for; infinitely many that demand nothing. Pure."""
    rooms = [min((node.get(name, 0) // amount for name, amount in demand.items()), default=math.inf) for node in nodes]
    match strategy:
        case "STRICT_PACK":
            return max(rooms, default=0)
        case "STRICT_SPREAD":
            return sum(room >= 1 for room in rooms)
        case _:
            return sum(rooms)


def ends_in_time(function: Callable[[], object]) -> bool:
    """Whether the function ends before a cluster that does not answer would hold it up. Its errors are passed over."""

    def run() -> None:
        with contextlib.suppress(Exception):
            function()

    thread = threading.Thread(target=run, name="core-sdk-ray", daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    return not thread.is_alive()


def reason_of(error: BaseException) -> str:
    """The first line of an error of Ray's, whose text may be a traceback."""
    cause = getattr(error, "cause", None) or error
    return str(cause).strip().splitlines()[0].rstrip(".")


def _check_somebody_listens(address: str | None) -> None:
    """Raises `OSError`. Ray itself would wait for more than a minute."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in ray.__version__.split(".")[:2])
