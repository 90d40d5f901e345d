"""Starts workers on a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from core_sdk.environment import RankPlace
from core_sdk.errors import MissingDependencyError, WorkersNotStartedError
from core_sdk.processes import RankSeen
from core_sdk.workers._engine import Answer, Death, Engine, Team, WorkerLost
from core_sdk.workers._output import ShownOutput
from core_sdk.workers.local import Order
from core_sdk.workers.ray._actor import NUM_THREADS, Node, WorkerActor

try:
    import ray
    from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    raise MissingDependencyError("ray", "ray", "RayEngine") from error
with contextlib.suppress(ImportError):
    # Ray would import them when the program ends, and they execute text. Python then forgets that a Ctrl-C has ended
    # the program, whose exit status would be 1.
    import ray.autoscaler.v2.utils
    import ray.dag.compiled_dag_node

T = TypeVar("T")

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]

# A larger request is stored once for all workers.
_LARGE_BYTES = 100_000
# For answers that the actors give at once.
_PROMPT_S = 10.0
_SIGKILL = 9


class RayEngine(Engine):
    """Workers on a Ray cluster. Each holds its resources from its start to its end."""

    def __init__(
        self,
        address: str | None = None,
        *,
        num_cpus: float = 1,
        num_gpus: float = 0,
        resources: Mapping[str, float] | None = None,
        strategy: Strategy = "PACK",
        placement_timeout_s: float = 60.0,
        log_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """`num_cpus`, `num_gpus` and `resources` are those of one worker.

        Connects to the cluster at `address`, unless the program has called `ray.init()` already. `strategy` is the
        placement group's. Workers for which there is no place after `placement_timeout_s` are not started. What the
        workers write is shown, each line with its rank, and appended to the file `log_path`.
        """
        # Never shut down: the connection is the program's, and Ray ends it with the program.
        if not ray.is_initialized():
            ray.init(address=address, logging_level=logging.WARNING, include_dashboard=None if address else False)
        self._demand = {"CPU": num_cpus, "GPU": num_gpus, **(resources or {})}
        self._demand = {name: amount for name, amount in self._demand.items() if amount > 0}
        self._strategy = strategy
        self._placement_timeout_s = placement_timeout_s
        self._shown = ShownOutput(log_path)
        self._team: RayTeam | None = None

    def start(self, num_workers: int) -> RayTeam:
        group = placement_group([self._demand] * num_workers, strategy=self._strategy)
        try:
            if not group.wait(self._placement_timeout_s):
                raise WorkersNotStartedError(num_workers, self._want_of_places(num_workers))
        except BaseException:
            _give_back([], group)
            raise
        self._team = RayTeam(num_workers, group, self._demand, self._shown)
        return self._team

    def num_available(self) -> int:
        free = dict(ray.available_resources())
        own = self._team.num_held() if self._team is not None else 0
        return own + int(min(free.get(name, 0) / amount for name, amount in self._demand.items()))

    def log_to(self, log_path: str | os.PathLike[str] | None) -> None:
        self._shown.log_to(log_path)

    def close(self) -> None:
        self._shown.close()

    def _want_of_places(self, num_workers: int) -> str:
        total, free = ray.cluster_resources(), ray.available_resources()
        asked = _amounts({name: amount * num_workers for name, amount in self._demand.items()})
        there = _amounts({name: total.get(name, 0) for name in self._demand})
        unused = _amounts({name: free.get(name, 0) for name in self._demand})
        return (
            f"they ask for {asked}; the cluster has {there}, of which {unused} are free, and placed them not within "
            f"{self._placement_timeout_s:g} s ({self._strategy}). Start fewer, ask for less, or add nodes"
        )


class RayTeam(Team):
    def __init__(
        self, num_workers: int, group: PlacementGroup, demand: Mapping[str, float], shown: ShownOutput
    ) -> None:
        """`group` has one bundle of `demand` for each worker, and is removed at the end."""
        self._group = group
        self._shown = shown
        self._ending = threading.Lock()
        self._is_ended = False
        self._storing = threading.Lock()
        self._stored: tuple[bytes, Any] | None = None
        actors = [_actor(group, index, demand) for index in range(num_workers)]
        try:
            nodes: list[Node] = ray.get([actor.node.remote() for actor in actors])
            order = _by_node(nodes)
            self._actors = [actors[index] for index in order]
            self.places = _places([nodes[index].node_id for index in order])
            self.address = nodes[order[0]].address
            is_one_node = self.places[0].cross_size == 1
            meeting_place = nodes[order[0]].meeting_place if is_one_node else None
            like_ours = Order(sys.path, sys.argv)
            starts = zip(self._actors, self.places, strict=True)
            ray.get([actor.start.remote(place, self.address, meeting_place, like_ours) for actor, place in starts])
        except BaseException as error:
            _give_back(actors, group)
            if isinstance(error, ray.exceptions.RayError):
                raise WorkersNotStartedError(num_workers, _reason(error)) from error
            raise
        self._showing = threading.Thread(target=self._show_output, name="core-sdk-ray-output", daemon=True)
        self._showing.start()

    def num_held(self) -> int:
        """How many workers hold their resources."""
        return 0 if self._is_ended else len(self._actors)

    def exchange(self, rank: int, request: bytes) -> Answer:
        try:
            answer: Answer = ray.get(self._actors[rank].exchange.remote(self._as_argument(request)))
        except ray.exceptions.RayError as error:
            raise WorkerLost from error
        return answer

    def death(self, rank: int) -> Death:
        now = time.monotonic()
        try:
            death: Death = ray.get(self._actors[rank].death.remote(), timeout=_PROMPT_S)
        except ray.exceptions.RayError as error:
            seen = RankSeen(rank, pid=0, code=-_SIGKILL, ended_s=now)
            return Death(
                seen, f"on node {self.places[rank].cross_rank}", f"was lost with its Ray actor: {_reason(error)}"
            )
        # Clocks of other hosts differ.
        seen = replace(death.seen, ended_s=now, traceback_s=None if death.seen.traceback_s is None else now)
        return replace(death, seen=seen)

    def signal(self, rank: int, number: int) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # it has ended
            ray.get(self._actors[rank].signal.remote(number), timeout=_PROMPT_S)

    def end(self, grace_s: float) -> None:
        # Before the lock: another thread may be giving them their grace, which a grace of 0 ends.
        ends = [] if self._is_ended else [actor.end.remote(grace_s) for actor in self._actors]
        with self._ending:
            if self._is_ended:
                return
            ray.wait(ends, num_returns=len(ends), timeout=grace_s + _PROMPT_S)
            self._showing.join(_PROMPT_S)
            _give_back(self._actors, self._group)
            self._is_ended = True

    def _as_argument(self, request: bytes) -> Any:
        """A large request is stored once, since the workers get the same one at about the same time."""
        if len(request) < _LARGE_BYTES:
            return request
        with self._storing:
            if self._stored is None or self._stored[0] is not request:
                self._stored = (request, ray.put(request))
            return self._stored[1]

    def _show_output(self) -> None:
        waiting = {actor.read_output.remote(): actor for actor in self._actors}
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
            actor = waiting.pop(ready)
            with contextlib.suppress(ray.exceptions.RayError):  # it has died
                if (chunks := ray.get(ready)) is not None:
                    _write_all(self._shown.stdout_fd, chunks[0])
                    _write_all(self._shown.stderr_fd, chunks[1])
                    waiting[actor.read_output.remote()] = actor


def _actor(group: PlacementGroup, index: int, demand: Mapping[str, float]) -> Any:
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


def _by_node(nodes: Sequence[Node]) -> list[int]:
    """The indexes, so that those of one node follow each other."""
    first = {node.node_id: index for index, node in reversed(list(enumerate(nodes)))}
    return sorted(range(len(nodes)), key=lambda index: first[nodes[index].node_id])


def _places(node_ids: Sequence[str]) -> list[RankPlace]:
    """The numbers of ranks on these nodes, by rank. Pure."""
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


def _give_back(actors: Sequence[Any], group: PlacementGroup) -> None:
    """A cluster that is gone, or too busy, does so by itself; an error would hide why the workers are ended."""
    for actor in actors:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(actor)
    with contextlib.suppress(ray.exceptions.RayError):
        remove_placement_group(group)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())


def _reason(error: BaseException) -> str:
    """The last line of an error of Ray's, whose text may be a traceback."""
    cause = getattr(error, "cause", None) or error
    return str(cause).strip().splitlines()[0]
