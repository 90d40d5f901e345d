"""Who gets slots next. A pure function of what is wanted and what runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

# Trials without slots do not wait for any, but a machine has its limits.
MAX_WITHOUT_SLOTS = 100


@dataclass(frozen=True)
class Demand:
    """What one experiment wants. A smaller `priority` comes first; of equal ones the older experiment."""

    experiment_id: int
    priority: int
    slots_per_trial: int
    max_slots: int | None
    waiting: Sequence[UUID]
    """Trials that wait, the first first."""
    running: Sequence[UUID]
    """Trials that run, the oldest first."""
    stopping: frozenset[UUID] = frozenset()
    """Those of them that are about to free their slots."""


@dataclass
class Decisions:
    """Trials to be started or to be stopped, each with its experiment."""

    start: list[tuple[int, UUID]] = field(default_factory=list)
    preempt: list[tuple[int, UUID]] = field(default_factory=list)
    """So that more important ones can start."""
    excess: list[tuple[int, UUID]] = field(default_factory=list)
    """Since `max_slots` of their experiment was lowered."""


def decide(demands: Iterable[Demand], num_slots: int) -> Decisions:
    """Gives out free slots by priority, and then by age.

    A trial for which there are not enough free slots keeps what is free, or soon will be, from those behind it. Running
    trials of less important experiments are stopped for it, the youngest first, if that frees enough. Before all that,
    an experiment that has more than its `max_slots` gives up its youngest trials.
    """
    ordered = sorted(demands, key=lambda demand: (demand.priority, demand.experiment_id))
    if excess := [(demand.experiment_id, request_id) for demand in ordered for request_id in _excess(demand)]:
        return Decisions(excess=excess)
    num_free = num_slots - sum(demand.slots_per_trial * len(demand.running) for demand in ordered)
    num_free_without = MAX_WITHOUT_SLOTS - sum(len(demand.running) for demand in ordered if not demand.slots_per_trial)
    decisions = Decisions()
    for demand in ordered:
        cost, num_used = demand.slots_per_trial, demand.slots_per_trial * len(demand.running)
        for request_id in demand.waiting:
            num_used += cost
            if cost > num_slots or (demand.max_slots is not None and num_used > demand.max_slots):
                break
            if cost == 0:
                if num_free_without == 0:
                    break
                num_free_without -= 1
            elif cost > num_free:
                num_coming = sum(other.slots_per_trial * len(other.stopping) for other in ordered)
                less_important = [other for other in ordered if other.priority > demand.priority]
                decisions.preempt = _victims(less_important, cost - num_free - num_coming)
                return decisions
            num_free -= cost
            decisions.start.append((demand.experiment_id, request_id))
    return decisions


def _excess(demand: Demand) -> list[UUID]:
    if demand.max_slots is None or not demand.slots_per_trial:
        return []
    staying = [request_id for request_id in demand.running if request_id not in demand.stopping]
    return staying[demand.max_slots // demand.slots_per_trial :]


def _victims(less_important: Sequence[Demand], num_wanted: int) -> list[tuple[int, UUID]]:
    """Running trials that have enough slots together; none if there are not enough, or none is wanted."""
    chosen = []
    for demand in reversed(less_important):
        for request_id in reversed(demand.running):
            if num_wanted > 0 and demand.slots_per_trial and request_id not in demand.stopping:
                chosen.append((demand.experiment_id, request_id))
                num_wanted -= demand.slots_per_trial
    return chosen if num_wanted <= 0 else []
