"""Values as text that is safe to show in a terminal."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

MOST_LISTED = 100
"""The largest number of labels, hyperparameters or metrics that a description of one thing names."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def printable(text: str) -> str:
    """Escapes what would move the cursor, change colours or reverse the direction of writing."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def listed(texts: Sequence[str]) -> str:
    return ", ".join(texts[:MOST_LISTED]) + more_than(len(texts))


def more_than(total: int) -> str:
    """Returns the words that say how many of `total` things are not listed; empty if all are."""
    return f" and {total - MOST_LISTED:,} more: --json has all" if total > MOST_LISTED else ""


def format_time(seconds: float | None) -> str:
    """Returns the local time as text; empty for None."""
    if seconds is None:
        return ""
    try:
        return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return repr(seconds)  # no calendar has this time: the clock was wrong


def format_size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"
