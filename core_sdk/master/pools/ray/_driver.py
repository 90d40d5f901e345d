"""The process that is connected to Ray: it keeps the actors of attempts, and reports what happens to them."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from core_sdk.errors import NodeLostError
from core_sdk.master.pools._order import AttemptOrder
from core_sdk.master.pools.ray._actor import NUM_THREADS, AttemptActor
from core_sdk.master.pools.ray._messages import (
    Ask,
    Claimed,
    ClaimFailed,
    ClusterNode,
    Device,
    Drop,
    Gone,
    Located,
    News,
    Over,
    Place,
    Signal,
    Watch,
)
from core_sdk.master.pools.ray._spooled import SpooledAttempt
from core_sdk.slots import Slots
from core_sdk.workers.ray import RayCluster, free_resources_by_node, reason_of

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
# How long an actor may take to withdraw its attempt.
_WITHDRAWING_S = 5.0


@dataclass
class _PlacedAttempt:
    """An attempt that the master has asked for."""

    order: AttemptOrder
    node_id: str = ""
    """Empty until Ray has chosen the node."""
    actor: Any = None
    answer: Future[Any] | None = None
    """The result of the current call, from which the next step follows."""
    spooled: SpooledAttempt | None = None
    """None for an attempt on a node that sees the home."""
    is_claimed: bool = False
    number: int = 0
    """The attempt's number if it runs or is to be started; 0 before that."""
    asked_at: float = field(default_factory=time.monotonic)
    num_deaths: int = 0
    """The number of actors that have died before they had claimed it."""
    try_again_at: float = field(default_factory=time.monotonic)

    @property
    def is_running(self) -> bool:
        return self.number > 0

    @property
    def is_busy_here(self) -> bool:
        """Whether a thread of this process works for it. The thread ends by itself if the node dies."""
        return self.spooled is not None and self.answer is not None and not self.answer.done()


class ClusterDriver:
    """Carries out the requests of the pool, and returns the news."""

    def __init__(self, address: str, namespace: str) -> None:
        """Connects to Ray. The `namespace` holds the names of the actors. Raises `RayClusterError`."""
        self._cluster = RayCluster(address, namespace)
        self._placed: dict[str, _PlacedAttempt] = {}
        self._nodes: dict[str, ClusterNode] = {}
        self._nodes_at = 0.0
        self._device: Device = "CPU"
        self._foreign: deque[Mapping[str, int]] = deque(maxlen=_NUM_READS)

    def step(self, asks: Sequence[Ask]) -> tuple[list[ClusterNode], list[News]]:
        """Carries out requests, and returns the living nodes and the news. Waits a moment for news if there is none."""
        for ask in asks:
            self._do(ask)
        self._read_nodes()
        for placed in self._placed.values():
            if placed.answer is None and time.monotonic() >= placed.try_again_at:
                self._call(placed)
        answers = [placed.answer for placed in self._placed.values() if placed.answer is not None]
        if answers:
            wait(answers, _STEP_S, FIRST_COMPLETED)
        else:
            time.sleep(_STEP_S)
        return list(self._nodes.values()), list(self._news())

    def _do(self, ask: Ask) -> None:
        match ask:
            case Place(order):
                self._placed.setdefault(order.name, _PlacedAttempt(order))
            case Watch(order, node_id, number):
                last = self._placed.get(order.name)
                if last is None:
                    self._placed[order.name] = _PlacedAttempt(order, node_id, _find(order.name), number=number)
                elif not last.is_running:
                    self._placed[order.name] = _PlacedAttempt(
                        order, node_id, last.actor, spooled=last.spooled, number=number
                    )
            case Signal(name, number):
                if name in self._placed and self._placed[name].actor is not None:
                    self._placed[name].actor.signal.remote(number)
            case Drop(name):
                self._drop(name)

    def _call(self, placed: _PlacedAttempt) -> None:
        if placed.is_running:
            if placed.node_id not in self._nodes:
                return  # it is dead, which `_news` reports
            if placed.actor is None:
                strategy = NodeAffinitySchedulingStrategy(placed.node_id, soft=False)
                placed.actor = _new_actor(placed.order, num_slots=0, scheduling_strategy=strategy)
            if placed.spooled is None:
                placed.answer = placed.actor.run.remote().future()
            else:
                placed.answer = _in_thread(placed.spooled.follow, placed.actor, placed.number)
            return
        if (stale := _find(placed.order.name)) is not None:
            # It was left by a master that was killed before it could record the attempt.
            ray.kill(stale)
            placed.try_again_at = time.monotonic() + _STEP_S
            return
        with contextlib.suppress(ValueError):  # an actor that is dying still has the name
            placed.actor = _new_actor(
                placed.order, placed.order.num_slots, self._device, name=placed.order.name, lifetime="detached"
            )
            placed.answer = placed.actor.node_id.remote().future()

    def _news(self) -> Iterator[News]:
        for name, placed in list(self._placed.items()):
            if placed.node_id and placed.node_id not in self._nodes and not placed.is_busy_here:
                yield self._lost_node(name, placed)
            elif placed.answer is not None and placed.answer.done():
                answer, placed.answer = placed.answer, None
                yield from self._heard(name, placed, answer)

    def _heard(self, name: str, placed: _PlacedAttempt, answer: Future[Any]) -> Iterator[News]:
        try:
            value = answer.result()
        except OSError as error:
            logger.warning("attempt %s on a node that does not see the home is tried again: %s", name, error)
            placed.try_again_at = time.monotonic() + _PAUSE_S
            return
        except (ray.exceptions.RayError, NodeLostError) as error:
            self._read_nodes(at_once=True)
            if placed.is_running:
                # The actor has died, and perhaps the node. If the node lives, the agent goes on.
                placed.actor, placed.try_again_at = None, time.monotonic() + _NODES_S
            elif placed.node_id and placed.node_id not in self._nodes:
                yield self._lost_node(name, placed)
            elif placed.num_deaths + 1 < _NUM_TRIES:
                placed.num_deaths += 1
                yield self._place_anew(name, placed)
            else:
                self._drop(name)
                yield ClaimFailed(name, f"its actor on the Ray cluster: {reason_of(error)}")
            return
        if placed.is_running and value is None:
            placed.spooled = SpooledAttempt(placed.order)
        elif placed.is_running:
            self._drop(name)
            yield Over(name, value)
        elif not placed.node_id:
            placed.node_id = value
            self._read_nodes(at_once=value not in self._nodes)
            placed.answer = placed.actor.claim.remote().future()
            yield Located(name, value)
        elif isinstance(value, Slots):
            placed.spooled = SpooledAttempt(placed.order)
            placed.answer = _in_thread(placed.spooled.claim, value)
        elif isinstance(value, str):
            self._drop(name)
            yield ClaimFailed(name, value)
        else:
            placed.is_claimed, placed.try_again_at = True, math.inf
            yield Claimed(name, value, placed.node_id)

    def _lost_node(self, name: str, placed: _PlacedAttempt) -> News:
        if not placed.is_running and not placed.is_claimed:
            return self._place_anew(name, placed)
        self._placed.pop(name)
        if placed.spooled is not None:
            placed.spooled.release()
        return Gone(name)

    def _place_anew(self, name: str, placed: _PlacedAttempt) -> News:
        """Lets Ray place an attempt again, on any node, since it has not begun."""
        if placed.spooled is not None:
            placed.spooled.withdraw()
            placed.spooled = None
        placed.node_id, placed.actor, placed.answer, placed.asked_at = "", None, None, time.monotonic()
        placed.try_again_at = time.monotonic() + _NODES_S
        return Located(name, "")

    def _drop(self, name: str) -> None:
        placed = self._placed.pop(name, None)
        actor = placed.actor if placed is not None else None
        if placed is not None and placed.spooled is not None and not placed.is_running:
            placed.spooled.withdraw()
        if actor is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                if placed is not None and placed.node_id and not placed.is_running:
                    ray.wait([actor.withdraw.remote()], timeout=_WITHDRAWING_S)
                ray.kill(actor)

    def _read_nodes(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._nodes_at < _NODES_S:
            return
        self._nodes_at = time.monotonic()
        alive = [node for node in ray.nodes() if node["Alive"]]
        self._device = "GPU" if any(node["Resources"].get("GPU") for node in alive) else "CPU"
        num_slots = {node["NodeID"]: int(node["Resources"].get(self._device, 0)) for node in alive}
        self._foreign.append(self._read_foreign(num_slots))
        names = node_names({node["NodeID"]: node["NodeManagerHostname"] for node in alive})
        self._nodes = {
            node_id: ClusterNode(
                node_id,
                names[node_id],
                self._device,
                num_slots[node_id],
                num_foreign=min(read.get(node_id, 0) for read in self._foreign),
            )
            for node_id, node in ((node["NodeID"], node) for node in alive)
        }

    def _read_foreign(self, num_slots: Mapping[str, int]) -> Mapping[str, int]:
        """Returns the number of slots on each node that are in use, but not by attempts of this home."""
        free = free_resources_by_node()
        own = Counter[str]()
        for placed in self._placed.values():
            own[placed.node_id] += placed.order.num_slots
        in_use = {
            node_id: max(0, room - own[node_id] - int(free[node_id].get(self._device, 0)))
            for node_id, room in num_slots.items()
            if node_id in free
        }
        if any(
            not placed.node_id and time.monotonic() - placed.asked_at < _PLACING_S for placed in self._placed.values()
        ):
            # The slots of an attempt that is being placed may be among these.
            last = {node.node_id: node.num_foreign for node in self._nodes.values()}
            return {node_id: min(number, last.get(node_id, 0)) for node_id, number in in_use.items()}
        return in_use


def node_names(hosts: Mapping[str, str]) -> dict[str, str]:
    """Returns a name for each node: its host, with the beginning of its id if several nodes are on the host. Pure."""
    num_nodes = Counter(hosts.values())
    return {node_id: host if num_nodes[host] == 1 else f"{host}-{node_id[:8]}" for node_id, host in hosts.items()}


def _new_actor(order: AttemptOrder, num_slots: int, device: Device = "CPU", **options: Any) -> Any:
    cpus, gpus = (0, num_slots) if device == "GPU" else (num_slots, 0)
    actor = ray.remote(AttemptActor)
    return actor.options(num_cpus=cpus, num_gpus=gpus, max_concurrency=NUM_THREADS, **options).remote(order)


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


def _find(name: str) -> Any:
    """Returns the actor of this name, or None if there is none."""
    try:
        return ray.get_actor(name)
    except ValueError:
        return None
