"""Trials as a tree: each variation stands below the trial that it varies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core_sdk._home.finding.facts import Facts


@dataclass(frozen=True)
class Branch:
    depth: int
    trial: Facts


def trial_tree(trials: Sequence[Facts], root: int | None = None) -> list[Branch]:
    """Returns the trials that have a variation or are one, each parent before its variations, in order of their ids.

    With a `root`, only that trial and what stands below it. A parent that was deleted leaves its variations at the top.
    """
    by_id = {one.row.trial_id: one for one in trials}
    children = defaultdict(list)
    for one in sorted(by_id.values(), key=lambda one: one.row.trial_id):
        parent = one.row.parent
        children[parent if parent in by_id and parent != one.row.trial_id else None].append(one)

    def below(one: Facts, depth: int) -> Iterator[Branch]:
        yield Branch(depth, one)
        for child in children[one.row.trial_id]:
            yield from below(child, depth + 1)

    tops = children[None] if root is None else [by_id[root]]
    wanted = [one for one in tops if root is not None or children[one.row.trial_id] or one.row.hypothesis]
    return [branch for one in wanted for branch in below(one, 0)]
