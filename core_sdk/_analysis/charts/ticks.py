"""Chooses the ticks of an axis, which stand at round numbers."""

from __future__ import annotations

import math

_MOST_TICKS = 7
_FEWEST_DECADES = 1.5


def round_ticks(low: float, high: float, *, is_logarithmic: bool = False) -> list[float]:
    """Returns round numbers within a range: multiples of 1, 2 or 5 times a power of ten; powers of ten for logarithms.

    If there are fewer than two, it returns the ends of the range.
    """
    if not low < high or not math.isfinite(high - low):
        return sorted({low, high})
    ticks = _logarithmic(low, high) if is_logarithmic else _linear(low, high)
    return ticks if len(ticks) > 1 else [low, high]


def _linear(low: float, high: float) -> list[float]:
    least = (high - low) / (_MOST_TICKS - 1)
    power = math.floor(math.log10(least))
    digit = next(one for one in (1, 2, 5, 10, 20) if one * 10.0**power >= least)
    step = digit * 10.0**power
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # The text of a decimal is exact, where its multiple of a power of ten is not.
    return [float(f"{index * digit}e{power}") for index in range(first, last + 1)]


def _logarithmic(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if math.log10(high / low) < _FEWEST_DECADES else (1,)
    every = math.ceil((last - first + 1) / _MOST_TICKS)
    ticks = [float(f"{digit}e{power}") for power in range(first, last + 1) if power % every == 0 for digit in digits]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
