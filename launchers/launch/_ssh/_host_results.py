"""How a training over hosts ended, told from how each host's part did: rules over values."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from core_sdk.processes import STOPPED, WELL
from launch._result import Ending


class Why(enum.IntEnum):
    """Of a failure; the lower, the nearer to the root."""

    CAUSE = 0
    SUFFERED = 1
    """From another node's failure, or so it looks."""
    ENDED = 2
    """By us, after another node's failure."""


@dataclass(frozen=True)
class NodeEnding:
    """In the order in which they came."""

    host: str
    ending: Ending
    why: Why = Why.CAUSE

    @property
    def is_failure(self) -> bool:
        return self.ending.code not in WELL


def ending_of_all(endings: Sequence[NodeEnding]) -> Ending:
    """That of the node that failed first; its words tell the host."""
    failures = sorted((node for node in endings if node.is_failure), key=lambda node: node.why)
    stopped = [node for node in endings if node.ending.code == STOPPED]
    for node in (*failures, *stopped):
        return node.ending
    return endings[0].ending if endings else Ending(0)
