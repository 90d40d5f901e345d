"""Judges whether two tries of a study differ by more than the noise of their seeds. Pure.

Each seed of a try gives one value. The difference of two means has an interval that holds the true difference with a
probability of 95 %, by Student's t:

- Where both tries have five seeds or more, each with its own spread, by Welch's method: B. L. Welch, "The
  generalization of 'Student's' problem when several different population variances are involved", Biometrika 34,
  1947.
- With fewer seeds, a spread of their own says little, and one seed has none. Then the spread is pooled over all tries
  of the study, as in Fisher's least significant difference: R. A. Fisher, "The Design of Experiments", 1935.
- A try whose own spread is more than twice the pooled one is not like the others: then it is Welch's method again, if
  both have several seeds.

If no try of the study has two seeds, nothing is known about the noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from core_sdk._home.finding.groups import deviation, mean

Mark = Literal["beyond noise", "within noise", "one seed", "no noise"]
"""`one seed`: nothing is known about the noise. `no noise`: all seeds of the study gave the same value in each try, so
that any difference is one."""

CONFIDENCE = 0.95
_FEWEST_OF_OWN = 5
"""The number of seeds from which on a try has a spread of its own."""
_MOST_TIMES_POOLED = 2.0


@dataclass(frozen=True)
class Sample:
    """The finite values of a try's seeds."""

    values: tuple[float, ...]

    @property
    def count(self) -> int:
        return len(self.values)

    @cached_property
    def mean(self) -> float:
        return mean(self.values)

    @cached_property
    def spread(self) -> float | None:
        """The standard deviation of a sample; None for one value."""
        return deviation(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Pooled:
    """The spread of the seeds within the tries of a study."""

    spread: float
    degrees_of_freedom: int


@dataclass(frozen=True)
class MeanDifference:
    """The difference of a try to another one, with what noise may have done to it."""

    value: float
    margin: float | None
    """Half of the interval; None if nothing is known about the noise."""
    mark: Mark
    method: str
    """How the margin was found, in words."""

    @property
    def low(self) -> float | None:
        return None if self.margin is None else self.value - self.margin

    @property
    def high(self) -> float | None:
        return None if self.margin is None else self.value + self.margin

    def is_better(self, *, smaller_is_better: bool) -> bool:
        return self.value < 0 if smaller_is_better else self.value > 0


def pooled_spread(samples: Iterable[Sample]) -> Pooled | None:
    """Returns the spread within all tries that have several seeds; None if none has."""
    several = [one for one in samples if one.count > 1]
    degrees = sum(one.count - 1 for one in several)
    if not degrees:
        return None
    spreads = ((one.spread or 0.0) * math.sqrt(one.count - 1) for one in several)
    return Pooled(math.hypot(*spreads) / math.sqrt(degrees), degrees)


def difference(after: Sample, before: Sample, pooled: Pooled | None, confidence: float = CONFIDENCE) -> MeanDifference:
    """Returns how much the mean of `after` is above that of `before`. Both have at least one value."""
    value = after.mean - before.mean
    if (own := _welch(after, before)) is not None and (pooled is None or _have_own_spread(after, before, pooled)):
        error, degrees, method = *own, "Welch's t"
    elif pooled is not None:
        error = pooled.spread * math.sqrt(1 / after.count + 1 / before.count)
        degrees, method = float(pooled.degrees_of_freedom), "t with the study's pooled spread"
    else:
        return MeanDifference(value, None, "one seed", "no try has two seeds")
    margin = t_quantile((1 + confidence) / 2, degrees) * error
    if margin == 0.0:
        return MeanDifference(value, 0.0, "no noise", "the seeds of each try gave the same value")
    return MeanDifference(value, margin, "beyond noise" if abs(value) > margin else "within noise", method)


def _have_own_spread(after: Sample, before: Sample, pooled: Pooled) -> bool:
    if min(after.count, before.count) >= _FEWEST_OF_OWN:
        return True
    return max(after.spread or 0.0, before.spread or 0.0) > _MOST_TIMES_POOLED * pooled.spread


def _welch(after: Sample, before: Sample) -> tuple[float, float] | None:
    """Returns the standard error of the difference and its degrees of freedom; None for a try of one seed."""
    if after.spread is None or before.spread is None:
        return None
    parts = [(one.spread or 0.0) / math.sqrt(one.count) for one in (after, before)]
    error = math.hypot(*parts)
    if error == 0.0:
        return 0.0, float(after.count + before.count - 2)
    shares = [(part / error) ** 4 / (one.count - 1) for part, one in zip(parts, (after, before), strict=True)]
    return error, 1 / math.fsum(shares)


@lru_cache(1024)
def t_quantile(probability: float, degrees: float) -> float:
    """Returns the quantile of Student's t distribution, for a probability of at least 0.5."""
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < probability:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def t_probability(value: float, degrees: float) -> float:
    """Returns the probability that Student's t is at most `value`, which is at least 0."""
    return 1 - _incomplete_beta(degrees / (degrees + value * value), degrees / 2, 0.5) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function, by Lentz's method for its continued fraction.

    Numerical Recipes, third edition, section 6.4.
    """
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only below
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _continued_fraction(x, a, b) / a


def _continued_fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    found = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + numerator * d, tiny)
            c = _away_from_zero(1 + numerator / c, tiny)
            found *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return found


def _away_from_zero(value: float, tiny: float) -> float:
    return tiny if abs(value) < tiny else value
