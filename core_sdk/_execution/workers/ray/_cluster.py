"""The connection of this program to a Ray cluster, and the cluster's room for workers."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import ray
from ray.autoscaler.v2.sdk import get_cluster_status

from core_sdk._ground.placement import matches_labels
from core_sdk.errors import RayClusterError

with contextlib.suppress(ImportError):
    # Ray would import them when the program ends, and they execute text. Python then forgets that a Ctrl-C has ended
    # the program, whose exit status would be 1.
    import ray.autoscaler.v2.utils
    import ray.dag.compiled_dag_node

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Resources = Mapping[str, float]
Labels = Mapping[str, str]
T = TypeVar("T")

_OLDEST_VERSION = (2, 60)
# How long a cluster may take for an answer. Ray itself waits for a minute, and then ends the program.
_ANSWER_S = 10.0
# How often a cluster that is watched is asked whether it is there.
_LOOK_S = 3.0
_AFTER_LOSS = "Ray ends this program within a minute; start it again when the cluster answers"


class NodeState(NamedTuple):
    free: Resources
    """The resources that nobody uses."""
    is_leaving: bool
    """Whether the node's end was announced: Ray drains it."""


class RayCluster:
    """A connection to a Ray cluster, from construction on, in a program or an actor.

    It is never shut down, since it belongs to the program, and Ray ends it together with the program.
    """

    def __init__(self, address: str | None, namespace: str | None = None) -> None:
        """Connects, unless the program is connected already. Raises `RayClusterError`.

        Names of actors are looked up in the `namespace`.
        """
        if _version() < _OLDEST_VERSION:
            oldest = ".".join(map(str, _OLDEST_VERSION))
            reason = f"ray {ray.__version__} is installed here, and Core SDK needs {oldest} or newer"
            raise RayClusterError(address, reason, f'Install it: pip install -U "ray>={oldest}"')
        if not ray.is_initialized():
            try:
                _check_somebody_listens(address)
                ray.init(
                    address,
                    namespace=namespace,
                    logging_level=logging.WARNING,
                    include_dashboard=None if address else False,
                )
            except RuntimeError as error:
                # The text about another version, for example, has several lines.
                raise RayClusterError(address, " ".join(str(error).split())) from error
            except (OSError, ValueError, ray.exceptions.RayError) as error:
                raise RayClusterError(address, reason_of(error)) from error
        self._address = address or ray.get_runtime_context().gcs_address
        self._job = ray.get_runtime_context().get_job_id()
        self._unanswered: threading.Thread | None = None
        """The thread that waits for an earlier answer. Until it comes, further questions get no answer either."""

    @property
    def is_connected(self) -> bool:
        """False once the program has called `ray.shutdown()`. Does not ask the cluster."""
        return bool(ray.is_initialized() and ray.get_runtime_context().get_job_id() == self._job)

    def why_unusable(self, patience_s: float = _ANSWER_S) -> str | None:
        """Returns why the cluster cannot be used any more; None if it answers within `patience_s`."""
        try:
            self._ask(ray.nodes, patience_s)
        except RayClusterError as error:
            return error.reason
        return None

    def await_loss(self, is_over: threading.Event, patience_s: float = _ANSWER_S) -> str | None:
        """Blocks until the cluster cannot be used any more, and returns why. Returns None when `is_over` is set."""
        while not is_over.wait(_LOOK_S):
            if reason := self.why_unusable(patience_s):
                return reason
        return None

    def nodes(self, label_selector: Labels | None = None) -> list[Resources]:
        """Returns the resources of each living node that has the labels, free or not.

        Raises `RayClusterError` if there is no answer.
        """
        nodes = [node for node in self._ask(ray.nodes) if node["Alive"]]
        return [node["Resources"] for node in nodes if matches_labels(node["Labels"], label_selector or {})]

    def node_states(self) -> dict[str, NodeState]:
        """Returns the state of each living node by its id. Raises `RayClusterError` if the cluster does not answer."""
        address = ray.get_runtime_context().gcs_address
        status: Any = self._ask(lambda: get_cluster_status(address))
        return {
            node.node_id: NodeState(node.available_resources(), node.node_status == "DRAINING")
            for node in (*status.active_nodes, *status.idle_nodes)
        }

    def free(self) -> Resources:
        """Returns the free resources of all nodes together. Raises `RayClusterError` if the cluster does not answer."""
        return dict(self._ask(ray.available_resources))

    def _ask(self, question: Callable[[], T], patience_s: float = _ANSWER_S) -> T:
        if not self.is_connected:
            raise RayClusterError(self._address, "this program has ended its connection to it by ray.shutdown()")
        answers: list[T] = []
        if self._unanswered is None or not self._unanswered.is_alive():
            asking = run_beside(lambda: answers.append(question()))
            asking.join(patience_s)
            self._unanswered = asking if asking.is_alive() else None
        if not answers:
            _show_errors_without_ray()
            raise RayClusterError(self._address, "it does not answer any more", _AFTER_LOSS)
        return answers[0]


def room(demand: Resources, strategy: Strategy, nodes: Sequence[Resources]) -> float:
    """Returns how many workers with this demand fit on these nodes; infinity for an empty demand. Pure."""
    rooms = [min((node.get(name, 0) // amount for name, amount in demand.items()), default=math.inf) for node in nodes]
    match strategy:
        case "STRICT_PACK":
            return max(rooms, default=0)
        case "STRICT_SPREAD":
            return sum(room >= 1 for room in rooms)
        case _:
            return sum(rooms)


def run_beside(function: Callable[[], object]) -> threading.Thread:
    """Calls the function in a thread, since a cluster that does not answer may block it. Ignores its errors."""

    def run() -> None:
        with contextlib.suppress(Exception):
            function()

    thread = threading.Thread(target=run, name="core-sdk-ray", daemon=True)
    thread.start()
    return thread


def _show_errors_without_ray() -> None:
    """Restores the hook for errors. Ray's own hook would report them to the lost cluster first, and never show them."""
    if sys.excepthook.__module__.startswith("ray."):
        sys.excepthook = sys.__excepthook__


def reason_of(error: BaseException) -> str:
    """Returns the first line of an error of Ray's, whose text may be a traceback."""
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip() or type(cause).__name__
    return text.splitlines()[0].rstrip(".")


def _check_somebody_listens(address: str | None) -> None:
    """Raises `OSError` if nothing listens at the address. Ray itself would wait for more than a minute."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in ray.__version__.split(".")[:2])
