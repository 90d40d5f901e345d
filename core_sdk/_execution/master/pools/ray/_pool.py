"""The pool of a Ray cluster, in the master."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.experiments.protocol import ClusterStatus, NodeStatus
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master._queue import Decisions, Demand, num_lacking
from core_sdk._execution.master.pools._pool import (
    Begun,
    Claim,
    Execution,
    MakeClaim,
    ResourcePool,
    SlotsTaken,
    join_nodes,
    split_nodes,
    too_many_slots,
)
from core_sdk._execution.master.pools.ray._messages import (
    Ask,
    Await,
    Claimed,
    ClaimFailed,
    ClusterNode,
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
from core_sdk._execution.workers import WorkerGroup, this_worker
from core_sdk._ground.config import RayOptions, Resources
from core_sdk._ground.placement import matches_labels
from core_sdk._ground.records import AttemptOutcome
from core_sdk._home.attempts.running import take_for_dead
from core_sdk._home.folders import TrialFolder
from core_sdk.errors import AttemptError, CoreSDKError, RayClusterError, WorkerDiedError, WorkerFailedError

if TYPE_CHECKING:
    from core_sdk._execution.master.pools.ray._driver import ClusterDriver

logger = logging.getLogger("core_sdk.master")

# How long until a cluster that does not answer is tried again.
_PAUSE_S = 3.0
_ANSWER_S = 30.0


class ClusterPool(ResourcePool):
    """Runs attempts on the nodes of the Ray cluster at `address`, which may be `auto`."""

    def __init__(self, address: str, home_root: Path, tell: Callable[[], None]) -> None:
        """Connects in the background. `tell` is called, in any thread, when there is news."""
        self._address = self.cluster = address
        self._namespace = f"core-sdk-{hashlib.sha256(str(home_root).encode()).hexdigest()[:16]}"
        self._tell = tell
        self._nodes: list[ClusterNode] = []
        self._asks: SimpleQueue[Ask] = SimpleQueue()
        self._awaited = Await(())
        self._followed: dict[str, _Followed] = {}
        self._changing = threading.Lock()
        self._is_known = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="core-sdk-cluster", daemon=True)
        self._thread.start()

    def num_nodes(self, resources: Resources) -> int:
        return num_nodes(resources, self._sizes_for(resources)) or resources.on_ray.nodes or 1

    def usable_nodes(self, resources: Resources) -> Collection[str]:
        return {node.node_id for node in self._nodes if fits(node, resources.on_ray)}

    def heed(self, demands: Sequence[Demand], decisions: Decisions) -> None:
        """Asks for the nodes that trials lack where the cluster may grow: in each round, also if none waits."""
        requests = []
        resources_of = {demand.experiment_id: demand.resources for demand in demands}
        for experiment_id, number in num_lacking(demands, decisions).items():
            resources = resources_of[experiment_id]
            nodes = self.num_nodes(resources)
            if resources.on_ray.autoscaling:
                requests.append((NodesRequest(nodes, resources.slots_per_trial // nodes, resources.on_ray), number))
        if (awaited := Await(tuple(requests))) != self._awaited:
            self._awaited = awaited
            self._asks.put(awaited)

    def notice(self, node_ids: Iterable[str]) -> str:
        """Returns in words that the end of one of these nodes was announced; empty if none was."""
        hosts = [node.host for node in self._nodes if node.is_leaving and node.node_id in node_ids]
        return f"node {hosts[0]} of the Ray cluster is about to end" if hosts else ""

    def _sizes_for(self, resources: Resources) -> list[int]:
        """Returns the slots of the nodes that trials with these resources can be on, the largest first."""
        sizes = [node.num_slots for node in self._nodes if not node.is_leaving and fits(node, resources.on_ray)]
        return sorted((size for size in sizes if size or not resources.slots_per_trial), reverse=True)

    def refusal(self, submission: SubmittedExperiment) -> str | None:
        if not self._is_known.is_set():
            return None
        resources = submission.config.resources
        sizes = self._sizes_for(resources)
        if resources.on_ray.autoscaling or num_nodes(resources, sizes) is not None:
            return ""
        asked = "that it asks for" if resources.ray is not None else ""
        nodes = f"nodes of {', '.join(map(str, sizes))} slots" if sizes else f"no slots {asked}".rstrip()
        return (
            f"{too_many_slots(submission)}, and the Ray cluster at {self._address} has {nodes}: give a number that one "
            "node has, or that can be divided evenly over several"
        )

    def rooms(self) -> Mapping[str, int]:
        return {node.node_id: 0 if node.is_leaving else node.num_slots - node.num_foreign for node in self._nodes}

    def reserve(self, num_slots: int, used: Collection[int], *, is_blocked: bool) -> MakeClaim | SlotsTaken:
        """Reserves nothing, since Ray decides which slots the attempt gets."""
        return SlotsTaken() if is_blocked else partial(_ClusterClaim, self)

    def find_unrecorded(self, folder: TrialFolder, last_attempt: int) -> Begun | None:
        """Returns None, since the next claim takes back an attempt that was not recorded."""
        return None

    def recover(self, order: AttemptOrder, begun: Begun) -> Execution:
        return _ClusterExecution(self, order, begun)

    def status(self) -> ClusterStatus:
        nodes = tuple(NodeStatus(node.host, node.num_slots, node.device) for node in self._nodes)
        return ClusterStatus(self._address, self.problem, nodes)

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join(_ANSWER_S)

    def host_of(self, node_id: str) -> str:
        return next((node.host for node in self._nodes if node.node_id == node_id), node_id[:8])

    def follow(self, name: str, followed: _Followed) -> None:
        """Sends `followed` the news of this name from now on, and repeats its request after a lost connection."""
        with self._changing:
            self._followed[name] = followed
            self._asks.put(followed.ask())

    def forget(self, name: str, followed: _Followed) -> None:
        with self._changing:
            if self._followed.get(name) is followed:
                del self._followed[name]

    def ask(self, ask: Ask) -> None:
        self._asks.put(ask)

    def _follow(self) -> None:
        while not self._is_closed.is_set():
            try:
                self._talk()
            except CoreSDKError as error:
                if isinstance(error, WorkerDiedError):  # Ray ends a program whose cluster has gone away
                    error = RayClusterError(self._address, "it does not answer any more")
                elif isinstance(error, WorkerFailedError):
                    error = error.__cause__ if isinstance(error.__cause__, CoreSDKError) else error
                self._nodes = []
                self._turn_to(str(error))
                self._is_closed.wait(_PAUSE_S)

    def _talk(self) -> None:
        """Exchanges requests and news until the pool is closed. Raises `CoreSDKError` if the cluster cannot be used."""
        with WorkerGroup(1) as group:
            group.run(_connect, self._address, self._namespace)
            with self._changing:
                asks: list[Ask] = [self._awaited, *(followed.ask() for followed in self._followed.values())]
            while not self._is_closed.is_set():
                [(self._nodes, news)] = group.run(_step, asks)
                self._turn_to("")
                for each in news:
                    self._hear(each)
                asks = list(self._new_asks())

    def _new_asks(self) -> Iterator[Ask]:
        with contextlib.suppress(Empty):
            while True:
                yield self._asks.get_nowait()

    def _hear(self, news: News) -> None:
        followed = self._followed.get(news.name)
        if followed is not None:
            followed.hear(news)
            self._tell()

    def _turn_to(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.error("%s", problem)
        self.problem = problem
        if not self._is_known.is_set():
            self._is_known.set()
            self._tell()


def num_nodes(resources: Resources, sizes: Sequence[int]) -> int | None:
    """Returns the fewest of these nodes over which the slots of a trial can be divided evenly; None if none can. Pure.

    `sizes` are their numbers of slots.
    """
    num_slots, wanted = resources.slots_per_trial, resources.on_ray.nodes
    for number in [wanted] if wanted else range(1, 2 if resources.is_single_node else len(sizes) + 1):
        if num_slots % number == 0 and sum(size >= num_slots // number for size in sizes) >= number:
            return number
    return None


def fits(node: ClusterNode, options: RayOptions) -> bool:
    """Returns whether a node has the labels and the other resources that trials ask for. Pure."""
    wanted = dict(options.resources)
    if options.accelerator_type:
        wanted[f"accelerator_type:{options.accelerator_type}"] = 0.001
    has_all = all(node.resources.get(name, 0) >= amount for name, amount in wanted.items())
    return has_all and matches_labels(node.labels, options.labels)


class _Followed(Protocol):
    """A receiver of the news of an attempt."""

    def ask(self) -> Ask: ...

    def hear(self, news: News) -> None: ...


class _ClusterClaim(Claim):
    def __init__(self, pool: ClusterPool, order: AttemptOrder) -> None:
        self.folder = order.folder
        self.slot_ids = tuple(range(order.num_slots))
        self._options = order.submission().config.resources.on_ray
        self._pool = pool
        self._order = order
        self._news: Claimed | ClaimFailed | None = None
        pool.follow(order.name, self)

    @property
    def is_over(self) -> bool:
        return self.is_abandoned or self._news is not None

    def begun(self) -> Begun:
        match self._news:
            case Claimed(_, number, node_ids):
                return Begun(number, self.slot_ids, join_nodes(node_ids))
            case ClaimFailed(_, reason):
                raise AttemptError(reason)
        raise AssertionError("it is asked before it is over")

    def start(self) -> Execution:
        return _ClusterExecution(self._pool, self._order, self.begun())

    def release(self) -> None:
        self.abandon()

    def _take_back(self) -> None:
        self._pool.forget(self._order.name, self)
        self._pool.ask(Drop(self._order.name))

    def ask(self) -> Ask:
        return Place(self._order, self._options)

    def hear(self, news: News) -> None:
        if isinstance(news, Located):
            self.node = join_nodes(news.node_ids) or None
        elif isinstance(news, Claimed | ClaimFailed):
            self._news = news


class _ClusterExecution(Execution):
    def __init__(self, pool: ClusterPool, order: AttemptOrder, begun: Begun) -> None:
        self._pool = pool
        self._order = order
        self._hosts = {node_id: pool.host_of(node_id) for node_id in split_nodes(begun.boot)}
        self._number = begun.number
        self._end: Over | Gone | None = None
        self._was_unheard = False
        """Whether it has ended while the cluster was away."""
        pool.follow(order.name, self)

    @property
    def is_over(self) -> bool:
        if self._end is None and self._pool.problem and self._is_ended_at_home():
            self._was_unheard = True
            self.hear(Over(self._order.name, ""))
        return self._end is not None

    def _is_ended_at_home(self) -> bool:
        """Returns whether the home shows that the attempt has ended, which a cluster that is away cannot tell."""
        folder, number = self._order.folder, self._number
        with contextlib.suppress(OSError):
            has_begun = folder.supervised_path(number).exists() or folder.exit_path(number).exists()
            return has_begun and not folder.is_running(number)
        return False

    @property
    def loss(self) -> tuple[AttemptOutcome, str] | None:
        if self._was_unheard:
            return "failed", f"it has ended while the Ray cluster at {self._pool.cluster} did not answer"
        match self._end:
            case Gone(_, _, None):
                return "failed", self.lost_node
            case Gone(_, node_id, code):
                return "failed", f"its command on node {self._hosts[node_id]} has ended alone, with status {code}"
        return None

    @property
    def lost_node(self) -> str:
        match self._end:
            case Gone(_, node_id, None):
                return f"its node {self._hosts[node_id]} has died"
        return ""

    @property
    def notice(self) -> str:
        return self._pool.notice(self._hosts)

    def signal(self, number: int) -> None:
        self._pool.ask(Signal(self._order.name, number))

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def ask(self) -> Ask:
        return Watch(self._order, tuple(self._hosts), self._number)

    def hear(self, news: News) -> None:
        if isinstance(news, Over | Gone):
            if isinstance(news, Over):
                self.problem = news.problem
            else:
                with contextlib.suppress(OSError):  # the next attempt says what is wrong with the home
                    take_for_dead(self._order.folder)
            self._end = news
            self._pool.forget(self._order.name, self)


def _connect(address: str, namespace: str) -> None:
    import core_sdk._execution.workers.ray  # noqa: F401 - imported first: it says what to install if Ray is missing
    from core_sdk._execution.master.pools.ray._driver import ClusterDriver  # imports Ray

    this_worker().state["driver"] = ClusterDriver(address, namespace)


def _step(asks: Sequence[Ask]) -> tuple[list[ClusterNode], list[News]]:
    driver: ClusterDriver = this_worker().state["driver"]
    return driver.step(asks)
