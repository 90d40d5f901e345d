"""The process that is connected to Ray: it keeps the actors of attempts, and reports what happens to them."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.util.placement_group import get_placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.master.pools.ray._actor import (
    NUM_THREADS,
    AttemptActor,
    NodeEnd,
    PlacedNode,
    actor_name,
    find_actor,
)
from core_sdk._execution.master.pools.ray._groups import PendingGroups, demand_of, new_group
from core_sdk._execution.master.pools.ray._messages import (
    Ask,
    Await,
    Claimed,
    ClaimFailed,
    ClusterNode,
    Device,
    Drop,
    Gone,
    Located,
    News,
    NodesRequest,
    Over,
    Place,
    Signal,
    Watch,
)
from core_sdk._execution.master.pools.ray._spooled import SpooledAttempt
from core_sdk._execution.workers.ray import NodeState, RayCluster, reason_of
from core_sdk._ground.config import RayOptions
from core_sdk._home.states import TRY_AGAIN
from core_sdk.errors import NodeLostError

logger = logging.getLogger("core_sdk.master")

# How long a step waits for news.
_STEP_S = 0.2
# The time between two reads of the nodes.
_NODES_S = 1.0
# Ray reports free slots late: slots that our attempts have just left are reported as free only after some reads.
_NUM_READS = 3
# How long Ray may take from giving slots to an actor until the actor answers.
_PLACING_S = 30.0
# The pause after records could not be brought home.
_PAUSE_S = 3.0
# How many actors may die before one has claimed an attempt, apart from those that die with their node.
_NUM_TRIES = 3
# How long the command may go on elsewhere when it has failed on a node, or has ended on the first one.
_OTHERS_S = 30.0
# How long the other nodes of an attempt that has lost a node may take to end it, and to bring its records home.
_LAST_S = 15.0
# How long an actor may take to withdraw its attempt.
_WITHDRAWING_S = 5.0


@dataclass
class _PlacedAttempt:
    """An attempt that the master has asked for. Its nodes are numbered; lists and mappings are by these numbers."""

    order: AttemptOrder
    options: RayOptions
    node_ids: tuple[str, ...] = ()
    """Empty until Ray has chosen the nodes."""
    actors: list[Any] = field(default_factory=list)
    """The attempt's actors, with None in the place of one that has died."""
    answers: dict[int, Future[Any]] = field(default_factory=dict)
    """The results of the current calls, from which the next step follows."""
    heard: dict[int, Any] = field(default_factory=dict)
    """The results of calls that are complete, until all are."""
    sees_home: bool | None = None
    """Whether all nodes see the home; None if it is not known. If not, all of them record in spools."""
    spooled: SpooledAttempt | None = None
    """The records to bring home; None for an attempt on nodes that see the home."""
    is_claimed: bool = False
    number: int = 0
    """The attempt's number if it runs or is to be started; 0 before that."""
    asked_at: float = field(default_factory=time.monotonic)
    num_deaths: int = 0
    """The number of actors that have died before the attempt was claimed."""
    try_again_at: float = field(default_factory=time.monotonic)
    lost: Gone | None = None
    """The loss that ends it, while what is left of it is being ended."""
    lost_at: float = 0.0
    killed_at: float = 0.0
    ended_alone_at: float | None = None
    """The time at which the command on one of its nodes ended so that the others cannot go on for long."""

    @property
    def is_running(self) -> bool:
        return self.number > 0

    @property
    def request(self) -> NodesRequest:
        return NodesRequest(self.order.num_nodes, self.order.num_slots // self.order.num_nodes, self.options)

    @property
    def undone(self) -> list[Future[Any]]:
        return [answer for answer in self.answers.values() if not answer.done()]


class ClusterDriver:
    """Carries out the requests of the pool, and returns the news."""

    def __init__(self, address: str, namespace: str) -> None:
        """Connects to Ray. The `namespace` holds the names of the actors. Raises `RayClusterError`."""
        self._cluster = RayCluster(address, namespace)
        self._placed: dict[str, _PlacedAttempt] = {}
        self._nodes: dict[str, ClusterNode] = {}
        self._nodes_at = 0.0
        self._device: Device = "CPU"
        self._pending = PendingGroups()
        self._foreign: deque[Mapping[str, int]] = deque(maxlen=_NUM_READS)

    def step(self, asks: Sequence[Ask]) -> tuple[list[ClusterNode], list[News]]:
        """Carries out requests, and returns the living nodes and the news. Waits a moment for news if there is none."""
        for ask in asks:
            self._do(ask)
        self._read_nodes()
        for placed in self._placed.values():
            if time.monotonic() >= placed.try_again_at:
                self._call(placed)
        if undone := [answer for placed in self._placed.values() for answer in placed.undone]:
            wait(undone, _STEP_S, FIRST_COMPLETED)
        else:
            time.sleep(_STEP_S)
        return list(self._nodes.values()), list(self._news())

    def _do(self, ask: Ask) -> None:
        match ask:
            case Place(order, options):
                self._placed.setdefault(order.name, _PlacedAttempt(order, options))
            case Watch(order, node_ids, number):
                last = self._placed.get(order.name)
                if last is None:
                    order = replace(order, num_nodes=len(node_ids))
                    actors = [find_actor(order.name, node) for node in range(order.num_nodes)]
                    self._placed[order.name] = _PlacedAttempt(order, RayOptions(), node_ids, actors, number=number)
                elif not last.is_running:
                    last.number, last.try_again_at = number, time.monotonic()
            case Signal(name, number):
                if name in self._placed:
                    _signal(self._placed[name], number)
            case Drop(name):
                self._drop(name)
            case Await(requests):
                self._pending.want(requests)

    def _call(self, placed: _PlacedAttempt) -> None:
        if placed.is_running:
            self._call_running(placed)
        elif not (placed.answers or placed.heard):
            self._place(placed)

    def _place(self, placed: _PlacedAttempt) -> None:
        order = placed.order
        if _end_actors(order.name, order.num_nodes):
            # They were left by a master that was killed before it could record the attempt.
            placed.try_again_at = time.monotonic() + _STEP_S
            return
        self._pending.take(placed.request)
        try:
            placed.actors = _new_actors(order, placed.request, self._device)
            placed.answers = {node: actor.look.remote().future() for node, actor in enumerate(placed.actors)}
        except (ValueError, ray.exceptions.RayError) as error:  # Ray refuses what is asked for, or the name is in use
            placed.answers = {0: _failed(error)}

    def _call_running(self, placed: _PlacedAttempt) -> None:
        """Calls the actors on those nodes that live, and were not called yet."""
        for node, node_id in enumerate(placed.node_ids):
            if node_id not in self._nodes or node in placed.answers or node in placed.heard:
                continue
            if placed.actors[node] is None:
                placed.actors[node] = _new_actor(
                    placed.order, node, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)
                )
            actor = placed.actors[node]
            if placed.sees_home is None:
                placed.answers[node] = actor.sees_home.remote().future()
            elif placed.spooled is None:
                others = [] if node else placed.actors[1:]
                placed.answers[node] = actor.run.remote(placed.order.home_root, placed.number, others).future()
            else:
                placed.answers[node] = _in_thread(placed.spooled.follow, placed.actors, node, placed.number)

    def _news(self) -> Iterator[News]:
        for name, placed in list(self._placed.items()):
            if dead := [node_id for node_id in placed.node_ids if node_id not in self._nodes]:
                yield from self._lose(name, placed, dead[0])
            elif placed.is_running:
                yield from self._hear_running(name, placed)
            else:
                yield from self._hear_placing(name, placed)

    def _hear_placing(self, name: str, placed: _PlacedAttempt) -> Iterator[News]:
        """Goes on with an attempt that is being placed and claimed, when all have answered, or one has failed."""
        done = [answer for answer in placed.answers.values() if answer.done()]
        error = next((error for answer in done if (error := answer.exception()) is not None), None)
        if error is not None:
            yield self._take_failure(name, placed, error)
            return
        if not done or placed.undone:
            return
        values = [answer.result() for _, answer in sorted(placed.answers.items())]
        placed.answers = {}
        if not placed.node_ids:
            yield self._claim(name, placed, values)
        elif isinstance(values[0], str):
            self._drop(name)
            yield ClaimFailed(name, values[0])
        else:
            placed.is_claimed, placed.try_again_at = True, math.inf
            yield Claimed(name, values[0], placed.node_ids)

    def _claim(self, name: str, placed: _PlacedAttempt, nodes: Sequence[PlacedNode]) -> News:
        """Lets the attempt be claimed on the nodes that Ray has chosen: by the first if all of them see the home."""
        placed.node_ids = tuple(node.node_id for node in nodes)
        placed.sees_home = all(node.sees_home for node in nodes)
        addresses = [node.address for node in nodes]
        self._read_nodes(at_once=not self._nodes.keys() >= set(placed.node_ids))
        if placed.sees_home:
            placed.answers = {0: placed.actors[0].claim.remote(addresses).future()}
        else:
            placed.spooled = SpooledAttempt(placed.order)
            placed.answers = {0: _in_thread(placed.spooled.claim, nodes[0].slots, addresses)}
        return Located(name, placed.node_ids)

    def _take_failure(self, name: str, placed: _PlacedAttempt, error: BaseException) -> News:
        """Lets Ray place an attempt again that was not claimed, since its actor has died. Gives up after some tries."""
        if not isinstance(error, ray.exceptions.RayError | ValueError):
            raise error
        self._read_nodes(at_once=True)
        if any(node_id not in self._nodes for node_id in placed.node_ids):
            return self._place_anew(name, placed)
        placed.num_deaths += 1
        if placed.num_deaths < _NUM_TRIES:
            return self._place_anew(name, placed)
        self._drop(name)
        return ClaimFailed(name, f"its actor on the Ray cluster: {reason_of(error)}")

    def _hear_running(self, name: str, placed: _PlacedAttempt) -> Iterator[News]:
        for node, answer in [(node, answer) for node, answer in placed.answers.items() if answer.done()]:
            del placed.answers[node]
            self._hear_node(name, placed, node, answer)
        if len(placed.heard) < len(placed.node_ids):
            self._end_others(placed)
        elif placed.sees_home is None:
            placed.sees_home = all(placed.heard.values())
            placed.spooled = None if placed.sees_home else SpooledAttempt(placed.order)
            placed.heard = {}
        else:
            problems = [end.problem for _, end in sorted(placed.heard.items()) if end.problem]
            self._drop(name)
            yield placed.lost or Over(name, problems[0] if problems else "")

    def _hear_node(self, name: str, placed: _PlacedAttempt, node: int, answer: Future[Any]) -> None:
        try:
            placed.heard[node] = answer.result()
        except OSError as error:
            logger.warning("attempt %s on a node that does not see the home is tried again: %s", name, error)
            placed.try_again_at = time.monotonic() + _PAUSE_S
        except (ray.exceptions.RayError, NodeLostError):
            # The actor has died, and perhaps the node. If the node lives, the agent goes on.
            self._read_nodes(at_once=True)
            placed.actors[node], placed.try_again_at = None, time.monotonic() + _NODES_S

    def _end_others(self, placed: _PlacedAttempt) -> None:
        """Kills what goes on alone after the command has failed on a node, or has ended on the first one."""
        ends = {node: end for node, end in placed.heard.items() if isinstance(end, NodeEnd)}
        failed = [node for node, end in ends.items() if end.problem or end.code not in (0, TRY_AGAIN)]
        if not failed and 0 not in ends:
            return
        placed.ended_alone_at = placed.ended_alone_at or time.monotonic()
        if time.monotonic() - placed.ended_alone_at > _OTHERS_S:
            if failed and 0 not in ends:
                placed.lost = Gone(placed.order.name, placed.node_ids[failed[0]], ends[failed[0]].code)
            self._kill(placed)

    def _lose(self, name: str, placed: _PlacedAttempt, node_id: str) -> Iterator[News]:
        """Ends what is left of an attempt that has lost a node. It is over when the other nodes have ended it."""
        if not placed.is_running and not placed.is_claimed:
            yield self._place_anew(name, placed)
            return
        if placed.lost is None:
            placed.lost, placed.lost_at = Gone(name, node_id), time.monotonic()
        for node, answer in [(node, answer) for node, answer in placed.answers.items() if answer.done()]:
            del placed.answers[node]
            self._hear_node(name, placed, node, answer)
        living = [node for node, node_id in enumerate(placed.node_ids) if node_id in self._nodes]
        # A thread that follows the node's spool ends by itself if the node dies.
        is_ending = any(node not in placed.heard for node in living) or (placed.spooled is not None and placed.undone)
        if placed.is_running and is_ending and time.monotonic() - placed.lost_at < _LAST_S:
            self._kill(placed)
            return
        self._drop(name)
        yield placed.lost

    def _kill(self, placed: _PlacedAttempt) -> None:
        if time.monotonic() - placed.killed_at > _NODES_S:
            placed.killed_at = time.monotonic()
            _signal(placed, signal.SIGKILL)

    def _place_anew(self, name: str, placed: _PlacedAttempt) -> News:
        """Lets Ray place an attempt again, on any nodes, since it has not begun."""
        if placed.spooled is not None:
            placed.spooled.withdraw()
        self._placed[name] = _PlacedAttempt(
            placed.order, placed.options, num_deaths=placed.num_deaths, try_again_at=time.monotonic() + _NODES_S
        )
        return Located(name, ())

    def _drop(self, name: str) -> None:
        """Gives the slots of an attempt back, and takes it back unless it was started."""
        placed = self._placed.pop(name, None)
        if placed is None:
            return
        if not placed.is_running and placed.spooled is not None:
            placed.spooled.withdraw()
        elif placed.spooled is not None:
            placed.spooled.release()
        with contextlib.suppress(ray.exceptions.RayError):
            if placed.node_ids and not placed.is_running:
                ray.wait([placed.actors[0].withdraw.remote()], timeout=_WITHDRAWING_S)
            for actor in filter(None, placed.actors):
                ray.kill(actor)
            _end_actors(name, placed.order.num_nodes)

    def _read_nodes(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._nodes_at < _NODES_S:
            return
        self._nodes_at = time.monotonic()
        alive = [node for node in ray.nodes() if node["Alive"]]
        self._device = "GPU" if any(node["Resources"].get("GPU") for node in alive) else "CPU"
        self._pending.look(self._device)
        states = self._cluster.node_states()
        num_slots = {node["NodeID"]: int(node["Resources"].get(self._device, 0)) for node in alive}
        self._foreign.append(self._read_foreign(num_slots, states))
        names = node_names({node["NodeID"]: node["NodeManagerHostname"] for node in alive})
        self._nodes = {
            node_id: ClusterNode(
                node_id,
                names[node_id],
                self._device,
                num_slots[node_id],
                num_foreign=min(read.get(node_id, 0) for read in self._foreign),
                labels=node["Labels"],
                resources=node["Resources"],
                is_leaving=node_id in states and states[node_id].is_leaving,
            )
            for node_id, node in ((node["NodeID"], node) for node in alive)
        }

    def _read_foreign(self, num_slots: Mapping[str, int], states: Mapping[str, NodeState]) -> Mapping[str, int]:
        """Returns the number of slots on each node that are in use, but not by attempts of this home."""
        own = Counter[str]()
        for placed in self._placed.values():
            for node_id in placed.node_ids:
                own[node_id] += placed.request.slots_per_node
        in_use = {
            node_id: max(0, room - own[node_id] - int(states[node_id].free.get(self._device, 0)))
            for node_id, room in num_slots.items()
            if node_id in states
        }
        if any(
            not placed.node_ids and time.monotonic() - placed.asked_at < _PLACING_S for placed in self._placed.values()
        ):
            # The slots of an attempt that is being placed may be among these.
            last = {node.node_id: node.num_foreign for node in self._nodes.values()}
            return {node_id: min(number, last.get(node_id, 0)) for node_id, number in in_use.items()}
        return in_use


def node_names(hosts: Mapping[str, str]) -> dict[str, str]:
    """Returns a name for each node: its host, with the beginning of its id if several nodes are on the host. Pure."""
    num_nodes = Counter(hosts.values())
    return {node_id: host if num_nodes[host] == 1 else f"{host}-{node_id[:8]}" for node_id, host in hosts.items()}


def _new_actors(order: AttemptOrder, request: NodesRequest, device: Device) -> list[Any]:
    """Asks Ray for an actor with all the resources of an attempt on each of its nodes, all or none."""
    group, demand = new_group(request, device, order.name), demand_of(request, device)
    return [
        _new_actor(
            order,
            node,
            demand,
            name=actor_name(order.name, node),
            lifetime="detached",
            runtime_env=request.options.runtime_env or None,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node),
        )
        for node in range(order.num_nodes)
    ]


def _new_actor(order: AttemptOrder, node: int, demand: Mapping[str, float] | None = None, **options: Any) -> Any:
    others = {**(demand or {})}
    cpus, gpus, memory = others.pop("CPU", 0), others.pop("GPU", 0), others.pop("memory", None)
    asked = ray.remote(AttemptActor).options(
        num_cpus=cpus, num_gpus=gpus, memory=memory, resources=others, max_concurrency=NUM_THREADS, **options
    )
    return asked.remote(order, node)


def _end_actors(name: str, num_nodes: int) -> bool:
    """Ends the actors of an attempt, and gives their slots back. Returns whether there were any."""
    left = [actor for node in range(num_nodes) if (actor := find_actor(name, node)) is not None]
    for actor in left:
        ray.kill(actor)
    try:
        remove_placement_group(get_placement_group(name))
    except ValueError:  # there is none
        return bool(left)
    return True


def _signal(placed: _PlacedAttempt, number: int) -> None:
    for actor in filter(None, placed.actors):
        actor.signal.remote(number)


def _failed(error: Exception) -> Future[Any]:
    future = Future[Any]()
    future.set_exception(error)
    return future


def _in_thread(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Calls the function in a thread that does not delay the end of this process."""
    future = Future[Any]()

    def call() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - the caller of `result` gets it
            future.set_exception(error)

    threading.Thread(target=call, name="core-sdk-spooled", daemon=True).start()
    return future
