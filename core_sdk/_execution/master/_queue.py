"""Decides which trials get slots next: a pure function of the demands of experiments and the rooms of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from core_sdk._ground.config import Resources

# Trials without slots do not wait for any, but a machine has its limits.
MAX_WITHOUT_SLOTS = 100


@dataclass(frozen=True)
class Demand:
    """The demand of one experiment. A smaller `priority` comes first; of equal ones, a smaller `place`."""

    experiment_id: int
    priority: int
    slots_per_trial: int
    max_slots: int | None
    waiting: Sequence[UUID]
    """Trials that wait, in the order in which they began to wait."""
    running: Sequence[UUID]
    """Trials that run, the oldest first."""
    nodes: Mapping[UUID, Sequence[str]]
    """The nodes of each running trial, on which it has its slots evenly."""
    unplaced: Sequence[UUID] = ()
    """Trials that were started, but whose node is not known yet."""
    stopping: frozenset[UUID] = frozenset()
    """Running trials that are about to free their slots."""
    num_nodes: int = 1
    """The number of nodes that the next trial takes."""
    place: float = 0.0
    usable: Collection[str] | None = None
    """The nodes on which its trials can run; None for all."""
    slots: Mapping[UUID, Collection[int]] = field(default_factory=dict)
    """The slots of each running trial, where the home has numbered them itself."""
    resources: Resources = field(default_factory=Resources)

    @property
    def order(self) -> tuple[int, float, int]:
        return self.priority, self.place, self.experiment_id

    @property
    def slots_per_node(self) -> int:
        return self.slots_per_trial // self.num_nodes

    def describe_scattered(self, most: int) -> str:
        """Says that the next trial waits for slots, of which as many nodes as it takes have `most` each."""
        if self.num_nodes == 1:
            return f"a trial waits for {self.slots_per_trial} free slots on one node, of which each has {most} at most"
        return (
            f"a trial waits for {self.num_nodes} nodes with {self.slots_per_node} free slots each, and no "
            f"{self.num_nodes} nodes have more than {most} each"
        )

    def among(self, rooms: Mapping[str, int]) -> Mapping[str, int]:
        """Returns the rooms of the nodes on which its trials can run."""
        return {node: room for node, room in rooms.items() if self.usable is None or node in self.usable}

    def slots_on(self, request_id: UUID, node: str) -> int:
        """Returns the number of slots that a running trial has on a node."""
        nodes = self.nodes[request_id]
        return self.slots_per_trial // len(nodes) if node in nodes else 0


@dataclass
class Decisions:
    """Trials to be started or to be stopped, each with its experiment."""

    start: list[tuple[int, UUID]] = field(default_factory=list)
    preempt: list[tuple[int, UUID]] = field(default_factory=list)
    """Trials to be stopped so that trials of more important experiments can start."""
    excess: list[tuple[int, UUID]] = field(default_factory=list)
    """Trials to be stopped because `max_slots` of their experiment was lowered."""
    withdraw: list[tuple[int, UUID]] = field(default_factory=list)
    """Trials that are not placed yet, and for which no node has room any more. They wait again."""
    blocked: tuple[int, UUID] | None = None
    """The first trial for which no node has enough free slots, though one is large enough. No later one is started."""
    scattered: dict[int, int] = field(default_factory=dict)
    """Experiments whose next trial waits because too few nodes have enough slots for it.

    The value is the largest number of slots that as many nodes as it takes have for it.
    """


def decide(demands: Iterable[Demand], rooms: Mapping[str, int], foreign: Mapping[str, int] | None = None) -> Decisions:
    """Assigns free slots by priority, and then by age. `rooms` are the slots of each node, free or not.

    `foreign` says how many of a node's slots others have.

    A trial has its slots on one node, or evenly on several. If too few nodes have enough free slots for a trial, no
    later trial is started. Running trials of less important experiments are stopped for it, the youngest first, if that
    frees enough slots. Before all that, an experiment that has more than its `max_slots` gives up its youngest trials.
    """
    ordered = sorted(demands, key=lambda demand: demand.order)
    if excess := [(demand.experiment_id, request_id) for demand in ordered for request_id in _excess(demand)]:
        return Decisions(excess=excess)
    free, coming = Counter(rooms), Counter[str]()
    free.subtract(foreign or {})
    for demand in ordered:
        for request_id in demand.running:
            for node in demand.nodes[request_id]:
                free[node] -= demand.slots_on(request_id, node)
        for request_id in demand.stopping:
            for node in demand.nodes[request_id]:
                coming[node] += demand.slots_on(request_id, node)
    if withdrawn := [
        (demand.experiment_id, request_id)
        for demand in ordered
        for request_id in demand.unplaced
        if not _take(free, demand.among(rooms), demand)
    ]:
        return Decisions(withdraw=withdrawn)
    num_free_without = MAX_WITHOUT_SLOTS - sum(_num_begun(demand) for demand in ordered if not demand.slots_per_trial)
    decisions = Decisions()
    for demand in ordered:
        cost = demand.slots_per_trial
        num_used = cost * _num_begun(demand)
        own = demand.among(rooms)
        if demand.waiting and demand.slots_per_node > (most := _most_each(own.values(), demand.num_nodes)):
            decisions.scattered[demand.experiment_id] = most
            continue
        for request_id in demand.waiting:
            num_used += cost
            if demand.max_slots is not None and num_used > demand.max_slots:
                break
            if cost == 0:
                if num_free_without == 0:
                    break
                num_free_without -= 1
            elif not _take(free, own, demand):
                if sum(free[node] for node in own) >= cost:
                    most = _most_each((free[node] for node in own), demand.num_nodes)
                    decisions.scattered[demand.experiment_id] = most
                decisions.blocked = demand.experiment_id, request_id
                decisions.preempt = _victims(ordered, demand, own, free, coming)
                return decisions
            decisions.start.append((demand.experiment_id, request_id))
    return decisions


def place_beside(other: float, places: Iterable[float], *, is_behind: bool) -> float:
    """Returns a place directly before or behind the `other` one, among `places` of other experiments."""
    neighbours = [place for place in places if (place > other if is_behind else place < other)]
    edge = other + 1 if is_behind else other - 1
    return (other + (min(neighbours) if is_behind else max(neighbours))) / 2 if neighbours else edge


def levels(demands: Iterable[Demand]) -> dict[int, int]:
    """Returns how many steps each experiment comes after the first one, for a queue that knows only such steps.

    Experiments of one priority have one level, unless one of them was moved: then each has its own.
    """
    ordered = sorted(demands, key=lambda demand: demand.order)
    moved = {demand.priority for demand in ordered if demand.place != demand.experiment_id}
    keys = {each.experiment_id: (each.priority, each.order if each.priority in moved else ()) for each in ordered}
    steps = list(dict.fromkeys(keys[each.experiment_id] for each in ordered if each.waiting or each.running))
    return {id_: sum(step < key for step in steps) for id_, key in keys.items()}


def num_lacking(demands: Iterable[Demand], decisions: Decisions) -> dict[int, int]:
    """Returns how many trials of each experiment wait for slots and for nothing else."""
    started = Counter(experiment_id for experiment_id, _ in decisions.start)
    found = {}
    for demand in demands:
        number = len(demand.waiting)
        if demand.max_slots is not None and demand.slots_per_trial:
            number = min(number, demand.max_slots // demand.slots_per_trial - _num_begun(demand))
        if demand.slots_per_trial and number > started[demand.experiment_id]:
            found[demand.experiment_id] = number - started[demand.experiment_id]
    return found


def _num_begun(demand: Demand) -> int:
    return len(demand.running) + len(demand.unplaced)


def _take(free: Counter[str], rooms: Iterable[str], demand: Demand) -> bool:
    """Takes the slots of one trial from the fullest nodes that have enough. Returns False if there are too few."""
    share = demand.slots_per_node
    nodes = sorted((node for node in rooms if free[node] >= share), key=lambda node: free[node])[: demand.num_nodes]
    if len(nodes) < demand.num_nodes:
        return share == 0
    for node in nodes:
        free[node] -= share
    return True


def _most_each(slots: Iterable[int], num_nodes: int) -> int:
    """Returns the largest number of slots that this number of nodes have each."""
    return sorted([*slots, *[0] * num_nodes], reverse=True)[num_nodes - 1]


def _excess(demand: Demand) -> list[UUID]:
    if demand.max_slots is None or not demand.slots_per_trial:
        return []
    staying = [request_id for request_id in demand.running if request_id not in demand.stopping]
    staying += demand.unplaced
    return staying[demand.max_slots // demand.slots_per_trial :]


def _victims(
    ordered: Sequence[Demand], demand: Demand, rooms: Mapping[str, int], free: Counter[str], coming: Counter[str]
) -> list[tuple[int, UUID]]:
    """Returns running trials of less important experiments that have enough slots on enough nodes, few on each node.

    Returns an empty list if there are not enough, or if none has to be stopped.
    """
    less_important = [other for other in ordered if other.priority > demand.priority]
    share = demand.slots_per_node
    wanted = {node: share - free[node] - coming[node] for node, room in rooms.items() if room >= share}
    choices = [_victims_on(node, less_important, num_wanted) for node, num_wanted in wanted.items()]
    chosen = sorted((choice for choice in choices if choice is not None), key=len)[: demand.num_nodes]
    if len(chosen) < demand.num_nodes:
        return []
    return list(dict.fromkeys(victim for choice in chosen for victim in choice))


def _victims_on(node: str, less_important: Sequence[Demand], num_wanted: int) -> list[tuple[int, UUID]] | None:
    """Returns the trials to stop on this node, or None if it does not have enough of them."""
    chosen = []
    for demand in reversed(less_important):
        for request_id in reversed(demand.running):
            num_there = demand.slots_on(request_id, node)
            if num_wanted > 0 and num_there and request_id not in demand.stopping:
                chosen.append((demand.experiment_id, request_id))
                num_wanted -= num_there
    return chosen if num_wanted <= 0 else None
