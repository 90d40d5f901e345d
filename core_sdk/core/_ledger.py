"""Which metrics an attempt has reported at which step, so that none is reported twice."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from core_sdk.errors import DuplicateMetricError
from core_sdk.journal import read_records
from core_sdk.records import Report, check_name

logger = logging.getLogger("core_sdk.train")


class _Group:
    """One group's position. `names_by_step` is None until a report first goes back in steps."""

    __slots__ = ("layout", "names_at_step", "names_by_step", "step")

    def __init__(self) -> None:
        self.step = -1
        self.layout: tuple[str, ...] = ()
        self.names_at_step: tuple[str, ...] = ()
        self.names_by_step: dict[int, tuple[str, ...]] | None = None


class Ledger:
    """The journal's lock must be held from `enter` until the report is in the journal.

    Steps nearly always rise, so that only the last one is remembered and memory stays flat. When a group goes back in
    steps, what it reported so far is read once from the journal.
    """

    def __init__(self, journal_path: Path) -> None:
        self._journal_path = journal_path
        self._groups: dict[str, _Group] = {}

    def enter(self, group_name: str, steps_completed: int, names: Iterable[str]) -> None:
        """Raises `InvalidNameError` or `TypeError` for a name, `DuplicateMetricError` for a second report."""
        names = tuple(names)
        group = self._groups.get(group_name)
        if group is None or names != group.layout:
            group = self._new_layout(group_name, names)
        if steps_completed > group.step:
            group.step = steps_completed
            group.names_at_step = names
            if group.names_by_step is not None:
                group.names_by_step[steps_completed] = names
        else:
            self._enter_again(group, group_name, steps_completed, names)

    def _new_layout(self, group_name: str, names: tuple[str, ...]) -> _Group:
        for name in names:
            check_name(f"the metric name in group {group_name!r}", name)
        group = self._groups.get(group_name)
        if group is None:
            group = self._groups[check_name("the metric group", group_name)] = _Group()
        group.layout = names
        return group

    def _enter_again(self, group: _Group, group_name: str, steps_completed: int, names: tuple[str, ...]) -> None:
        if steps_completed == group.step:
            earlier = group.names_at_step
        else:
            if group.names_by_step is None:
                group.names_by_step = self._read_names_by_step(group_name)
            earlier = group.names_by_step.get(steps_completed, ())
        if twice := sorted(set(earlier).intersection(names)):
            raise DuplicateMetricError(group_name, twice, steps_completed)
        if steps_completed == group.step:
            group.names_at_step = earlier + names
        if group.names_by_step is not None:
            group.names_by_step[steps_completed] = earlier + names

    def _read_names_by_step(self, group_name: str) -> dict[int, tuple[str, ...]]:
        names_by_step: dict[int, tuple[str, ...]] = {}
        layouts: dict[tuple[str, ...], tuple[str, ...]] = {}
        try:
            for record in read_records(self._journal_path):
                if isinstance(record, Report) and record.group == group_name:
                    names = names_by_step.get(record.steps_completed, ()) + tuple(record.metrics)
                    names_by_step[record.steps_completed] = layouts.setdefault(names, names)
        except FileNotFoundError:
            pass  # this rank records no reports
        except OSError as error:
            # To miss a report made twice is better than to lose one, and the training with it.
            logger.warning("whether group %r repeats a step cannot be told: %s", group_name, error)
        return names_by_step
