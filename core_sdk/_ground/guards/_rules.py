"""The rules by which a value of a metric is trouble. Each keeps what it must know of the values before."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable

# With fewer values a median says nothing.
_LEAST_VALUES = 5
# The median of the distances of normally distributed values from their median, times this, is their standard deviation.
_OF_NORMAL = 1.4826


class Rule(ABC):
    """Judges the values of one metric, in order."""

    good_until: int | None = None
    """The last step at which all was well, if the rule knows better than that it was the one before the trouble."""

    @abstractmethod
    def judge(self, steps: int, value: float) -> str:
        """Returns in words what is wrong with the value; empty if nothing is."""


class NotFinite(Rule):
    """A value that is NaN or infinite."""

    def judge(self, steps: int, value: float) -> str:
        return "" if math.isfinite(value) else f"is {value}"


class Bound(Rule):
    """A value below or above a bound. NaN is neither."""

    def __init__(self, *, below: float | None = None, above: float | None = None) -> None:
        if below is None and above is None:
            raise ValueError("give a bound: below, above or both")
        self._below = below
        self._above = above

    def judge(self, steps: int, value: float) -> str:
        if self._below is not None and value < self._below:
            return f"{value:.6g} is below {self._below:.6g}"
        if self._above is not None and value > self._above:
            return f"{value:.6g} is above {self._above:.6g}"
        return ""


class _OfRecentValues(Rule):
    """The base of rules that compare a value with the last ones. A value that was trouble is not one of these."""

    def __init__(self, factor: float, num_last: int) -> None:
        if factor <= 0 or num_last < _LEAST_VALUES:
            raise ValueError(f"the factor must be above 0, and the number of values at least {_LEAST_VALUES}")
        self._factor = factor
        self._last: deque[float] = deque(maxlen=num_last)

    def judge(self, steps: int, value: float) -> str:
        if not math.isfinite(value):
            return ""  # a rule of its own
        words = self._compare(value) if len(self._last) >= _LEAST_VALUES else ""
        if not words:
            self._last.append(value)
        return words

    @abstractmethod
    def _compare(self, value: float) -> str: ...


class AboveMedian(_OfRecentValues):
    """A value above `factor` times the median of the last `num_last` ones, for metrics above 0."""

    def _compare(self, value: float) -> str:
        usual = _median(self._last)
        if usual <= 0 or value <= self._factor * usual:
            return ""
        return f"{value:.6g} is {value / usual:.3g} times the median of the last {len(self._last)}"


class RobustScore(_OfRecentValues):
    """A value that lies `factor` standard deviations above the median of the last ones, by their median distance."""

    def _compare(self, value: float) -> str:
        usual = _median(self._last)
        deviation = _OF_NORMAL * _median(abs(each - usual) for each in self._last)
        if deviation == 0 or value - usual <= self._factor * deviation:
            return ""
        score = (value - usual) / deviation
        return f"{value:.6g} lies {score:.3g} deviations above the median of the last {len(self._last)}"


def median(values: Iterable[float]) -> float:
    """Returns the median. That of `statistics` would cost each training the import of decimals and fractions."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class NotBetter(Rule):
    """A metric whose best value is older than `num_steps`. Values that are not finite are never the best."""

    def __init__(self, num_steps: int, *, smaller_is_better: bool = True) -> None:
        if num_steps < 1:
            raise ValueError("the number of steps must be at least 1")
        self._num_steps = num_steps
        self._sign = 1 if smaller_is_better else -1
        self._best = math.inf

    def judge(self, steps: int, value: float) -> str:
        if self.good_until is None or self._sign * value < self._best:
            if math.isfinite(value):
                self._best = self._sign * value
            self.good_until = steps
            return ""
        if steps - self.good_until < self._num_steps:
            return ""
        return f"was best at step {self.good_until:,}, {steps - self.good_until:,} steps ago"


def _median(values: Iterable[float]) -> float:
    """Returns the median; `statistics` would be slow to import."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
