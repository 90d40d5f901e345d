"""Starts workers on a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

import ray
from msgspec.structs import replace
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from core_sdk._execution.workers._engine import Death, Engine, Team, WorkerAnswer, WorkerLost
from core_sdk._execution.workers._output import ShownOutput
from core_sdk._execution.workers.local import ProgramArguments
from core_sdk._execution.workers.ray._actor import NUM_THREADS, ActorNode, WorkerActor
from core_sdk._execution.workers.ray._cluster import (
    Labels,
    RayCluster,
    Resources,
    Strategy,
    reason_of,
    room,
    run_beside,
)
from core_sdk._ground.environment import RankPlace
from core_sdk._machine.processes import RankSeen
from core_sdk.errors import WorkerDiedError, WorkersNotStartedError

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("core_sdk.workers")

# A larger request is stored once for all workers.
_LARGE_BYTES = 100_000
# For answers that the actors give at once.
_PROMPT_S = 10.0
# How long workers wait for places before it is said.
_SILENCE_S = 5.0
# How long placed actors may take until their workers listen.
_START_S = 300.0
# How soon it is noticed that the program has ended its connection to the cluster.
_LOOK_S = 0.5
# How long the end waits for records to be brought home.
_HOLD_S = 120.0
_REMEDY = "Start fewer, ask for less, or add nodes"
_SIGKILL = 9


class RayEngine(Engine):
    """Workers on a Ray cluster. Each holds its resources from its start to its end."""

    def __init__(
        self,
        address: str | None = None,
        *,
        num_cpus: float = 1,
        num_gpus: float = 0,
        resources: Resources | None = None,
        strategy: Strategy = "PACK",
        label_selector: Labels | Sequence[Labels] | None = None,
        placement_timeout_s: float = 60.0,
        is_growing: bool = False,
        log_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """`num_cpus`, `num_gpus` and `resources` are for each worker.

        Connects to the cluster at `address`, unless the program has called `ray.init()` already. `strategy` is the
        placement group's. `label_selector` says which labels the nodes must have, of all workers or of each. Workers
        wait `placement_timeout_s` for places that others hold; those for which the nodes have no room at all are
        refused at once, unless the cluster `is_growing` on demand. What the workers write is shown, each line with its
        rank, and appended to the file `log_path`.

        Raises `RayClusterError`.
        """
        super().__init__(log_path)
        self._cluster = RayCluster(address)
        demand = {"CPU": num_cpus, "GPU": num_gpus, **(resources or {})}
        self._demand = {name: amount for name, amount in demand.items() if amount > 0}
        self._strategy: Strategy = strategy
        self._label_selector = label_selector
        self._placement_timeout_s = placement_timeout_s
        self._is_growing = is_growing
        self._team: RayTeam | None = None

    def start(self, num_workers: int) -> RayTeam:
        """Starts workers as `Engine.start` does. Also raises `RayClusterError`."""
        nodes = self._cluster.nodes(self._label_selector if isinstance(self._label_selector, Mapping) else {})
        if not self._is_growing and room(self._demand, self._strategy, nodes) < num_workers:
            reason = f"{self._want(num_workers, nodes)}: it will never have room for them. {_REMEDY}"
            raise WorkersNotStartedError(num_workers, reason)
        group = placement_group(
            [self._demand] * num_workers, strategy=self._strategy, bundle_label_selector=self._labels_of(num_workers)
        )
        try:
            self._await_places(group, num_workers)
        except BaseException:
            _give_back([], group)
            raise
        self._team = RayTeam(num_workers, group, self._demand, self.shown, self._cluster)
        return self._team

    def num_available(self) -> int:
        free = self._cluster.free()
        own = self._team.num_held() if self._team is not None else 0
        return own + int(room(self._demand, "PACK", [free]))

    def _labels_of(self, num_workers: int) -> list[dict[str, str]] | None:
        """Returns the label selector of each worker; None without any."""
        given = self._label_selector
        if not given:
            return None
        each = [given] * num_workers if isinstance(given, Mapping) else given[:num_workers]
        return [dict(selector) for selector in each]

    def _await_places(self, group: PlacementGroup, num_workers: int) -> None:
        if group.wait(min(_SILENCE_S, self._placement_timeout_s)):
            return
        logger.warning("%d workers wait for places: %s", num_workers, self._want(num_workers, self._cluster.nodes()))
        if not group.wait(max(0.0, self._placement_timeout_s - _SILENCE_S)):
            want = self._want(num_workers, self._cluster.nodes())
            reason = f"{want}: it had no place for them within {self._placement_timeout_s:g} s. {_REMEDY}"
            raise WorkersNotStartedError(num_workers, reason)

    def _want(self, num_workers: int, nodes: Sequence[Resources]) -> str:
        free = self._cluster.free()
        asked = _amounts({name: amount * num_workers for name, amount in self._demand.items()})
        there = _amounts({name: sum(node.get(name, 0) for node in nodes) for name in self._demand})
        unused = _amounts({name: free.get(name, 0) for name in self._demand})
        return (
            f"they ask for {asked} ({self._strategy}); the cluster has {there}, of which {unused} are free "
            f"(nodes: {len(nodes)})"
        )


class RayTeam(Team):
    def __init__(
        self, num_workers: int, group: PlacementGroup, demand: Resources, shown: ShownOutput, cluster: RayCluster
    ) -> None:
        """`group` has one bundle of `demand` for each worker, and is removed at the end."""
        self._cluster = cluster
        self._group = group
        self._shown = shown
        self._ending = threading.Lock()
        self._is_ended = threading.Event()
        self._loss: str | None = None
        """The reason why the cluster cannot be used any more."""
        self._holding = threading.Lock()
        self._storing = threading.Lock()
        self._stored: tuple[bytes, Any] | None = None
        actors = [_actor(group, index, demand) for index in range(num_workers)]
        try:
            nodes: list[ActorNode] = _answers([actor.node.remote() for actor in actors])
            order = _by_node(nodes)
            self._actors = [actors[index] for index in order]
            self.places = _places([nodes[index].node_id for index in order])
            self.address = nodes[order[0]].address
            is_one_node = self.places[0].cross_size == 1
            meeting_place = nodes[order[0]].meeting_place if is_one_node else None
            like_ours = ProgramArguments(sys.path, sys.argv)
            starts = zip(self._actors, self.places, strict=True)
            _answers([actor.start.remote(place, self.address, meeting_place, like_ours) for actor, place in starts])
        except BaseException as error:
            _give_back(actors, group)
            if isinstance(error, ray.exceptions.RayError):
                raise WorkersNotStartedError(num_workers, reason_of(error)) from error
            raise
        self._showing = threading.Thread(target=self._show_output, name="core-sdk-ray-output", daemon=True)
        self._showing.start()
        threading.Thread(target=self._watch_cluster, name="core-sdk-ray-watch", daemon=True).start()

    def num_held(self) -> int:
        """Returns the number of workers that hold their resources."""
        return 0 if self._is_ended.is_set() else len(self._actors)

    def exchange(self, rank: int, request: bytes, *, in_thread: bool = False) -> WorkerAnswer:
        if self._is_lost():
            raise WorkerLost
        argument = self._as_argument(request)
        answer: WorkerAnswer = self._result(self._actors[rank].exchange.remote(argument, in_thread=in_thread))
        return answer

    def call_beside(self, rank: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._is_lost():
            raise WorkerLost
        result: T = self._result(self._actors[rank].call.remote(function, args, kwargs))
        return result

    def hold(self) -> AbstractContextManager[object]:
        return self._holding

    def _result(self, reference: Any) -> Any:
        """Blocks until the result is there, and returns it. Raises `WorkerLost`.

        `ray.get` would crash the program if the program calls `ray.shutdown()` meanwhile.
        """
        future: Future[Any] = reference.future()
        while not wait([future], _LOOK_S).done:
            if self._is_lost():
                raise WorkerLost
        try:
            return future.result()
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise WorkerLost from error

    def death(self, rank: int) -> Death:
        now = time.monotonic()
        if reason := self._loss or self._cluster.why_unusable():
            self._abandon()
            return self._lost_with(rank, f"its Ray cluster: {reason}", now)
        try:
            death: Death = ray.get(self._actors[rank].death.remote(), timeout=_PROMPT_S)
        except ray.exceptions.RayError as error:
            return self._lost_with(rank, f"its Ray actor: {reason_of(error)}", now)
        # Clocks of other hosts differ.
        seen = replace(death.seen, ended_s=now, traceback_s=None if death.seen.traceback_s is None else now)
        return replace(death, seen=seen)

    def _lost_with(self, rank: int, what: str, now: float) -> Death:
        seen = RankSeen(rank, pid=0, code=-_SIGKILL, ended_s=now)
        return Death(seen, f"on node {self.places[rank].cross_rank}", f"was lost with {what}")

    def signal(self, rank: int, number: int) -> None:
        if not self._cluster.is_connected:
            return
        with contextlib.suppress(ray.exceptions.RayError):  # it has ended
            ray.get(self._actors[rank].signal.remote(number), timeout=_PROMPT_S)

    def end(self, grace_s: float) -> None:
        if not self._cluster.is_connected:
            # Ray has ended all with the connection.
            self._is_ended.set()
        # Before the lock: another thread may be giving them their grace, which a grace of 0 ends.
        ends = [] if self._is_ended.is_set() else [actor.end.remote(grace_s) for actor in self._actors]
        with self._ending:
            if self._is_ended.is_set():
                return
            ray.wait(ends, num_returns=len(ends), timeout=grace_s + _PROMPT_S)
            self._showing.join(_PROMPT_S)
            if self._holding.acquire(timeout=_HOLD_S):
                self._holding.release()
            _give_back(self._actors, self._group)
            self._is_ended.set()

    def _is_lost(self) -> bool:
        return self._loss is not None or not self._cluster.is_connected

    def _watch_cluster(self) -> None:
        self._loss = self._cluster.await_loss(self._is_ended)

    def _abandon(self) -> None:
        """Ends the actors without waiting. They may outlive the control plane, and keep their places if it returns."""
        self._is_ended.set()
        if self._cluster.is_connected:
            for actor in self._actors:
                actor.end.remote(0)
            _give_back(self._actors, self._group, time_s=0)

    def _as_argument(self, request: bytes) -> Any:
        """Stores a large request once for all workers, which get the same one at about the same time."""
        if len(request) < _LARGE_BYTES:
            return request
        with self._storing:
            if self._stored is None or self._stored[0] is not request:
                self._stored = (request, ray.put(request))
            return self._stored[1]

    def _show_output(self) -> None:
        sinks = self._shown.stdout, self._shown.stderr
        waiting = {actor.read_output.remote().future(): actor for actor in self._actors}
        while waiting and self._cluster.is_connected:
            for future in wait(waiting, _LOOK_S, FIRST_COMPLETED).done:
                actor = waiting.pop(future)
                with contextlib.suppress(ray.exceptions.RayError):  # it has died
                    for chunk in future.result():
                        if chunk is None:
                            break
                        sinks[chunk[0]].try_write(chunk[1])
                    else:
                        waiting[actor.read_output.remote().future()] = actor


def _answers(references: Sequence[Any]) -> list[Any]:
    """Returns what actors that are being started answer. Raises `WorkerDiedError` if one is lost meanwhile."""
    deadline = time.monotonic() + _START_S
    answers = []
    for index, reference in enumerate(references):
        try:
            answers.append(ray.get(reference, timeout=max(0.0, deadline - time.monotonic())))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, WorkerDiedError):
                raise error.cause from error
            raise
        except (ray.exceptions.RayActorError, ray.exceptions.NodeDiedError) as error:
            if getattr(error, "actor_init_failed", False):  # it would fail again
                raise
            cause = f"was lost as it started, with its Ray actor: {reason_of(error)}"
            raise WorkerDiedError(index, "on Ray", cause) from error
    return answers


def _actor(group: PlacementGroup, index: int, demand: Resources) -> Any:
    others = {name: amount for name, amount in demand.items() if name not in ("CPU", "GPU")}
    return (
        ray.remote(WorkerActor)
        .options(
            num_cpus=demand.get("CPU", 0),
            num_gpus=demand.get("GPU", 0),
            resources=others,
            max_concurrency=NUM_THREADS,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        )
        .remote()
    )


def _by_node(nodes: Sequence[ActorNode]) -> list[int]:
    """Returns the indexes of the nodes, sorted so that equal nodes follow each other."""
    first = {node.node_id: index for index, node in reversed(list(enumerate(nodes)))}
    return sorted(range(len(nodes)), key=lambda index: first[nodes[index].node_id])


def _places(node_ids: Sequence[str]) -> list[RankPlace]:
    """Returns the places of ranks on these nodes, by rank. Pure."""
    nodes = list(dict.fromkeys(node_ids))
    return [
        RankPlace(
            rank=rank,
            size=len(node_ids),
            local_rank=node_ids[:rank].count(node),
            local_size=node_ids.count(node),
            cross_rank=nodes.index(node),
            cross_size=len(nodes),
        )
        for rank, node in enumerate(node_ids)
    ]


def _give_back(actors: Sequence[Any], group: PlacementGroup, time_s: float = _PROMPT_S) -> None:
    """Gives the places back. Waits `time_s` at most, since Ray waits for a lost cluster until it ends the program."""

    def give_back() -> None:
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(group)

    run_beside(give_back).join(time_s)


def _amounts(resources: Resources) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())
