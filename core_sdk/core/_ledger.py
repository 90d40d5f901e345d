"""Remembers which metrics an attempt has reported at which step, so that none is reported twice."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from core_sdk.errors import DuplicateMetricError
from core_sdk.journal import find_records
from core_sdk.records import Report, check_name

logger = logging.getLogger("core_sdk.train")

_STEPS_PER_PAGE = 256
# What a group remembers costs about 24 bytes for each unit: 24 MB at most.
_MAX_UNITS = 1 << 20
_UNITS_PER_PAGE = 8
_UNITS_PER_LAYOUT = 1024


class _Steps:
    """A set of steps. Rising steps are kept as runs with even strides, all others as bits in pages.

    Nearly every training is a single run, however long it is.
    """

    __slots__ = ("first", "firsts", "last", "lasts", "pages", "stride", "strides")

    def __init__(self) -> None:
        self.first = self.last = -1
        self.stride = 0
        self.firsts, self.lasts, self.strides = array("q"), array("q"), array("q")
        self.pages: dict[int, int] = {}

    def add(self, step: int) -> int:
        """Returns how many more units of memory the set takes."""
        if step <= self.last:
            return self._add_to_page(step)
        if step - self.last == self.stride:
            self.last = step
            return 0
        if self.first == self.last:
            self.stride, self.last = step - self.last, step
            return 0
        self.firsts.append(self.first)
        self.lasts.append(self.last)
        self.strides.append(self.stride)
        self.first = self.last = step
        self.stride = 0
        return 1

    def _add_to_page(self, step: int) -> int:
        number, bit = divmod(step, _STEPS_PER_PAGE)
        page = self.pages.get(number, 0)
        self.pages[number] = page | 1 << bit
        return 0 if page else _UNITS_PER_PAGE

    def __contains__(self, step: int) -> bool:
        if self.first <= step:
            first, last, stride = self.first, self.last, self.stride
        else:
            index = bisect_right(self.firsts, step) - 1
            if index < 0:
                return False
            first, last, stride = self.firsts[index], self.lasts[index], self.strides[index]
        if step <= last and (step - first) % (stride or 1) == 0:
            return True
        number, bit = divmod(step, _STEPS_PER_PAGE)
        return bool(self.pages.get(number, 0) >> bit & 1)


class _Group:
    """The steps that one group has reported. A layout is the tuple of a report's metric names."""

    __slots__ = ("by_layout", "by_name", "is_complete", "layout", "num_units", "step", "steps")

    def __init__(self) -> None:
        self.step = -1
        """The highest so far."""
        self.is_complete = True
        self.forget()

    def forget(self) -> None:
        self.num_units = 0
        self.layout: tuple[str, ...] = ()
        self.steps = _Steps()
        """Those of `layout`."""
        self.by_layout: dict[tuple[str, ...], _Steps] = {}
        self.by_name: defaultdict[str, list[_Steps]] = defaultdict(list)

    def turn_to(self, layout: tuple[str, ...]) -> None:
        steps = self.by_layout.get(layout)
        if steps is None:
            steps = self.by_layout[layout] = _Steps()
            self.num_units += _UNITS_PER_LAYOUT
            for name in layout:
                self.by_name[name].append(steps)
        self.layout, self.steps = layout, steps

    def add(self, step: int) -> None:
        self.step = max(self.step, step)
        self.num_units += self.steps.add(step)
        if self.num_units > _MAX_UNITS:
            self.is_complete = False
            self.forget()

    def reported(self, step: int, names: Iterable[str]) -> list[str]:
        return [name for name in names if any(step in steps for steps in self.by_name[name])]


class Ledger:
    """The journal's lock must be held from `enter` until the report is in the journal.

    A report takes microseconds, also one that goes back in steps. Memory is flat where strides are even, and bounded
    everywhere: a group that reports more (with a million uneven strides, or a thousand sets of names) looks into the
    journal when it goes back, which takes up to seconds.
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
        steps = group.steps
        if steps_completed > group.step and steps_completed - steps.last == steps.stride:
            group.step = steps.last = steps_completed
            return
        if steps_completed <= group.step and (twice := self._reported(group, group_name, steps_completed, names)):
            raise DuplicateMetricError(group_name, sorted(twice), steps_completed)
        group.add(steps_completed)

    def _new_layout(self, group_name: str, names: tuple[str, ...]) -> _Group:
        for name in names:
            check_name(f"the metric name in group {group_name!r}", name)
        group = self._groups.get(group_name)
        if group is None:
            group = self._groups[check_name("the metric group", group_name)] = _Group()
        group.turn_to(names)
        return group

    def _reported(self, group: _Group, group_name: str, step: int, names: tuple[str, ...]) -> Iterable[str]:
        if group.is_complete:
            return group.reported(step, names)
        return self._reported_in_journal(group_name, step).intersection(names)

    def _reported_in_journal(self, group_name: str, step: int) -> set[str]:
        names: set[str] = set()
        text = f'"group":{msgspec.json.encode(group_name).decode()},"steps_completed":{step},'
        try:
            for found in find_records(self._journal_path, [text]):
                if isinstance(found, Report) and (found.group, found.steps_completed) == (group_name, step):
                    names.update(found.metrics, found.json_metrics or ())
        except OSError as error:
            # Recording a report twice is better than losing it, or failing the training.
            logger.warning("whether group %r repeats a step cannot be told: %s", group_name, error)
        return names
