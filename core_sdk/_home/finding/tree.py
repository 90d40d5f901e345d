"""Trials as a tree: each variation stands below the trial that it varies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core_sdk._home.finding.facts import Facts
from core_sdk._home.finding.groups import Aggregate, aggregate


@dataclass(frozen=True)
class Branch:
    depth: int
    trial: Facts
    """The trial; of a try the first one."""
    seeds: Sequence[Facts] = ()
    """The other trials of the try, which differ from the first in their seeds only."""

    def best(self, name: str) -> Aggregate | None:
        """Returns the best values of the trials, by the name of one such as `min.loss`; None if none is finite."""
        return aggregate(one.metric(name) for one in (self.trial, *self.seeds))


def trial_tree(trials: Sequence[Facts], root: int | None = None) -> list[Branch]:
    """Returns the trials that have a variation or are one, each parent before its variations, in order of their ids.

    Of a try there is only the first trial, with the others as its seeds. With a `root`, only that trial and what stands
    below it. A parent that was deleted leaves its variations at the top.
    """
    by_id = {one.row.trial_id: one for one in trials}
    seeds = defaultdict(list)
    for one in trials:
        if (first := one.row.try_id) is not None and first != one.row.trial_id and first in by_id:
            seeds[first].append(by_id.pop(one.row.trial_id))
            root = first if root == one.row.trial_id else root
    children = defaultdict(list)
    for one in sorted(by_id.values(), key=lambda one: one.row.trial_id):
        parent = one.row.parent
        children[parent if parent in by_id and parent != one.row.trial_id else None].append(one)

    def below(one: Facts, depth: int) -> Iterator[Branch]:
        yield Branch(depth, one, seeds[one.row.trial_id])
        for child in children[one.row.trial_id]:
            yield from below(child, depth + 1)

    tops = children[None] if root is None else [by_id[root]]
    wanted = [one for one in tops if root is not None or children[one.row.trial_id] or one.row.hypothesis]
    return [branch for one in wanted for branch in below(one, 0)]
