"""Decides which reports are recorded: no report of a trial is made again by mistake."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable

from core_sdk._ground.records import check_name
from core_sdk.errors import DuplicateMetricError

logger = logging.getLogger("core_sdk.train")


class Ledger(ABC):
    """Decides whether a report is recorded.

    The journal's lock must be held from `enter` until the report is in the journal.
    """

    @abstractmethod
    def enter(
        self,
        group_name: str,
        steps_completed: int,
        names: Iterable[str],
        checkpoint: str | None = None,
        *,
        may_repeat: bool = False,
    ) -> None:
        """Enters a report, or raises an error if it must not be recorded.

        `checkpoint` is the storage id of what was evaluated. With `may_repeat` the newest step may come again.
        """

    def newest_steps(self, group_name: str) -> NewestSteps | None:
        """Returns the newest steps of a group; None if each of its reports must be entered.

        For a report with the names of the last one and a later step it is enough to raise `step`.
        """
        return None


class NewestSteps:
    """The newest step of each metric that a group has reported.

    Nearly every report has the names of the one before it, so the newest step of these is a single number.
    """

    __slots__ = ("layout", "others", "step")

    def __init__(self) -> None:
        self.layout: tuple[str, ...] = ()
        self.step = -1
        """The newest step of each name in `layout`."""
        self.others: dict[str, int] = {}
        """The newest step of each other name."""

    def by_name(self) -> dict[str, int]:
        self.others |= dict.fromkeys(self.layout, self.step)
        return self.others


class TrialLedger(Ledger):
    """Refuses a report of the trial's own program that repeats the newest step of one of its metrics.

    A report that goes back in steps is recorded, with one warning: whether it repeats one cannot be told without all
    steps in memory.
    """

    def __init__(self) -> None:
        self._groups: dict[str, NewestSteps] = {}
        self._has_warned = False

    def enter(
        self,
        group_name: str,
        steps_completed: int,
        names: Iterable[str],
        checkpoint: str | None = None,
        *,
        may_repeat: bool = False,
    ) -> None:
        """Enters a report. Raises `InvalidNameError`, `TypeError`, or `DuplicateMetricError` for a repeated one."""
        if checkpoint is not None:
            raise ValueError("checkpoint=… names what a writer has evaluated: init(trial=…, writer=…) begins one")
        names = tuple(names)
        group = self._groups.get(group_name)
        if group is not None and steps_completed > group.step and names == group.layout:
            group.step = steps_completed
        else:
            self._compare(group_name, steps_completed, names, may_repeat)

    def newest_steps(self, group_name: str) -> NewestSteps | None:
        return self._groups.get(group_name)

    def _compare(self, group_name: str, step: int, names: tuple[str, ...], may_repeat: bool) -> None:
        group = self._groups.get(group_name) or NewestSteps()
        newest = group.by_name()
        for name in names:
            if name not in newest:
                check_name(f"the metric name in group {group_name!r}", name)
        repeated = sorted(name for name in names if newest.get(name) == step)
        if repeated and not may_repeat:
            raise DuplicateMetricError(group_name, repeated, step)
        self._groups[check_name("the metric group", group_name)] = group
        risen = [name for name in names if newest.get(name, -1) < step]
        newest |= dict.fromkeys(risen, step)
        if len(risen) == len(names):
            group.layout, group.step = names, step
            return
        group.layout, group.step = (), -1
        if not self._has_warned and len(risen) + len(repeated) < len(names):
            self._has_warned = True
            logger.warning(
                "group %r goes back from step %d to step %d: if a metric is reported again at a step, the later value "
                "counts. Count steps over the whole training, not per epoch. Later reports that go back are recorded "
                "without a warning",
                group_name,
                max(newest[name] for name in names),
                step,
            )
