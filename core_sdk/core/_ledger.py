"""Remembers which metrics an attempt has reported at which step, so that none is reported twice."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
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
_UNITS_PER_SET = 32
_UNITS_PER_NAME = 8
_MOST_UNITS_COPIED = 1 << 10


class _Steps:
    """The steps of some names that were always reported together.

    Rising steps are kept as runs with even strides, all others as bits in pages. Nearly every training is a single
    run, however long it is.
    """

    __slots__ = ("first", "firsts", "last", "lasts", "num_names", "pages", "shared", "stride", "strides")

    def __init__(self, num_names: int, shared: _Steps | None = None) -> None:
        """`shared` has the earlier steps, to which nothing is added any more."""
        self.num_names = num_names
        self.shared = shared
        self.forget_own()

    def forget_own(self) -> None:
        self.first = self.last = -1
        self.stride = 0
        self.firsts, self.lasts, self.strides = array("q"), array("q"), array("q")
        self.pages: dict[int, int] = {}

    def copy(self, num_names: int) -> _Steps:
        copy = _Steps(num_names, self.shared)
        copy.first, copy.last, copy.stride = self.first, self.last, self.stride
        copy.firsts, copy.lasts, copy.strides = self.firsts[:], self.lasts[:], self.strides[:]
        copy.pages = dict(self.pages)
        return copy

    def part(self, num_names: int) -> _Steps:
        """Returns another set with the same steps. If they are many, both share them, so that nothing is doubled."""
        if self.num_units() > _MOST_UNITS_COPIED:
            self.shared = self.copy(0)
            self.forget_own()
        return self.copy(num_names)

    def num_units(self) -> int:
        return _UNITS_PER_SET + len(self.firsts) + _UNITS_PER_PAGE * len(self.pages)

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

    def _has(self, step: int) -> bool:
        """Whether the step is one of the set's own."""
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

    def __contains__(self, step: int) -> bool:
        steps: _Steps | None = self
        while steps is not None and not steps._has(step):
            steps = steps.shared
        return steps is not None


# Contains no step, and no step follows it.
_NO_STEPS = _Steps(0)


class _Group:
    """The steps that one group has reported. A layout is the tuple of a report's metric names.

    Names that were always reported together share a set of steps, so that a report takes as long as its layout has
    such sets, however many layouts there are.
    """

    __slots__ = ("by_name", "is_complete", "layout", "num_units", "sets", "step", "steps")

    def __init__(self) -> None:
        self.step = -1
        """The highest so far."""
        self.is_complete = True
        self.forget()

    def forget(self) -> None:
        self.num_units = 0
        self.by_name: dict[str, _Steps] = {}
        self.turn_to(())

    def turn_to(self, layout: tuple[str, ...]) -> None:
        together: defaultdict[_Steps, list[str]] = defaultdict(list)
        for name in layout:
            together[self.by_name.get(name, _NO_STEPS)].append(name)
        self.sets = [self._set_of(names, steps) for steps, names in together.items()]
        self.steps = self.sets[0] if len(self.sets) == 1 else _NO_STEPS
        """The steps of `layout`, if all its names were always reported together."""
        self.layout = layout

    def _set_of(self, names: list[str], steps: _Steps) -> _Steps:
        """Returns a set of steps for these names alone, which were in `steps` before."""
        if len(names) == steps.num_names:
            return steps
        part = steps.part(len(names))
        self.num_units += part.num_units()
        self.by_name.update(dict.fromkeys(names, part))
        if steps is _NO_STEPS:
            self.num_units += _UNITS_PER_NAME * len(names)
        else:
            steps.num_names -= len(names)
        return part

    def add(self, step: int) -> None:
        self.step = max(self.step, step)
        for steps in self.sets:
            self.num_units += steps.add(step)
        if self.num_units > _MAX_UNITS:
            self.is_complete = False
            self.forget()

    def reported(self, step: int) -> list[str]:
        """Returns the names of the layout that were reported at the step."""
        twice = {steps for steps in self.sets if step in steps}
        return [name for name in self.layout if self.by_name[name] in twice] if twice else []


class Ledger:
    """Refuses a second report of a metric at the same step.

    The journal's lock must be held from `enter` until the report is in the journal.

    A report takes microseconds, also one that goes back in steps. Memory is flat where strides are even, and bounded
    everywhere: a group that reports more (with a million uneven strides, or ten thousand names) looks into the journal
    when it goes back, which takes up to seconds.
    """

    def __init__(self, journal_path: Callable[[], Path]) -> None:
        self._journal_path = journal_path
        self._groups: dict[str, _Group] = {}

    def enter(self, group_name: str, steps_completed: int, names: Iterable[str]) -> None:
        """Enters a report. Raises `InvalidNameError`, `TypeError`, or `DuplicateMetricError` for a second report."""
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
            return group.reported(step)
        return self._reported_in_journal(group_name, step).intersection(names)

    def _reported_in_journal(self, group_name: str, step: int) -> set[str]:
        names: set[str] = set()
        text = f'"group":{msgspec.json.encode(group_name).decode()},"steps_completed":{step},'
        try:
            for found in find_records(self._journal_path(), [text]):
                if isinstance(found, Report) and (found.group, found.steps_completed) == (group_name, step):
                    names.update(found.metrics, found.json_metrics or ())
        except OSError as error:
            # Recording a report twice is better than losing it, or failing the training.
            logger.warning("whether group %r repeats a step cannot be told: %s", group_name, error)
        return names
