"""Decides from the times of its signs since when a rank is silent for longer than usual. Pure."""

from __future__ import annotations

import msgspec

# The first batch, the first step, the first report and the second batch tell nothing about the usual time between two.
_LEAST_SIGNS = 5
# Who is at work for longer than so many times the longest bound, and does not say that it validates or saves, loops.
_LOOP_FACTOR = 3


class StallBounds(msgspec.Struct, frozen=True):
    """The time for which a rank may be silent: so many times the longest silence so far, between two bounds."""

    factor: float = 10.0
    least_s: float = 60.0
    most_s: float = 3600.0

    @classmethod
    def parse(cls, text: str) -> StallBounds | None:
        """Returns the bounds that `FACTOR,LEAST_S,MOST_S` says; None for "off". Raises `ValueError`."""
        if text == "off":
            return None
        try:
            factor, least_s, most_s = map(float, text.split(","))
        except ValueError:
            raise ValueError(f"{text!r} is neither off nor FACTOR,LEAST_S,MOST_S, such as 10,60,3600") from None
        if not (factor > 0 and 0 < least_s <= most_s):
            raise ValueError(f"{text!r}: the factor must be above 0, and LEAST_S at most MOST_S")
        return cls(factor, least_s, most_s)

    def after(self, longest_s: float) -> float:
        return min(self.most_s, max(self.least_s, self.factor * longest_s))


class Pulse:
    """The signs of one rank."""

    def __init__(self, bounds: StallBounds) -> None:
        self._bounds = bounds
        self._count = 0
        self._at = 0.0
        self._last_sign_at = 0.0
        self._longest_s = 0.0
        self._busy_since = 0.0
        self._longest_busy_s: float | None = None
        self._seen_at = 0.0

    def see(self, now: float, count: int, at: float, busy_since: float = 0.0) -> None:
        """Notes what is known at the time `now`."""
        if self._busy_since and busy_since != self._busy_since:
            self._longest_busy_s = max(self._longest_busy_s or 0.0, self._seen_at - self._busy_since)
        elif count > self._count and at > self._at and self._count >= _LEAST_SIGNS:
            self._longest_s = max(self._longest_s, (at - self._at) / (count - self._count), self._seen_at - self._at)
        self._count, self._at, self._busy_since = max(count, self._count), max(at, self._at), busy_since
        self._seen_at = now
        self._last_sign_at = max(at, self._last_sign_at)

    def excuse(self, now: float) -> None:
        """Counts as a sign that the rank was seen at work."""
        self._longest_s = max(self._longest_s, now - self._at)
        self._at = now
        self._busy_since = self._busy_since and now

    def bound_s(self) -> float | None:
        """Returns how long it may be silent; None before it has given enough signs."""
        if self._count < _LEAST_SIGNS:
            return None
        if not self._busy_since:
            return self._bounds.after(self._longest_s)
        if self._longest_busy_s is None:
            return self._bounds.most_s
        return self._bounds.after(max(self._longest_busy_s, self._longest_s))

    def silent_s(self, now: float) -> float | None:
        """Returns for how long it has been silent if that is longer than it may be, else None."""
        bound_s, silent_s = self.bound_s(), now - max(self._at, self._busy_since)
        return silent_s if bound_s is not None and silent_s > bound_s else None

    def is_overdue(self, now: float) -> bool:
        """Returns whether it has been silent for so long that it cannot be at work on a step."""
        return not self._busy_since and now - self._last_sign_at > _LOOP_FACTOR * self._bounds.most_s
