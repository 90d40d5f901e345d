"""Values as text that is safe to show in a terminal."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

MOST_LISTED = 100
"""The largest number of labels, hyperparameters or metrics that a description of one thing names."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_CONTROL = re.compile(
    rb"\x1b\[(?P<colours>[0-9;:]*m)"
    rb"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"  # movements, titles, resets
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]"
)
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)|\xc2)\Z")
_LONGEST_SEQUENCE = 4096


def printable(text: str) -> str:
    """Escapes what would move the cursor, change colours or reverse the direction of writing."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


class HarmlessOutput:
    """Takes output in chunks and leaves of it what only shows something: text, lines, tabs, returns and colours."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Returns what can be shown. A sequence that has not ended is held back for the next call."""
        content = self._held + chunk
        cut = _UNFINISHED.search(content, max(0, len(content) - _LONGEST_SEQUENCE))
        end = len(content) if cut is None else cut.start()
        self._held = content[end:]
        return _CONTROL.sub(lambda found: found[0] if found["colours"] is not None else b"", content[:end])


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


def format_milliseconds(duration: int) -> str:
    """Returns a duration with all its milliseconds, as `1 d 02:03:04.005`."""
    seconds, thousandths = divmod(duration, 1000)
    days, seconds = divmod(seconds, 86400)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{thousandths:03}"
    return f"{days} d {clock}" if days else clock


def format_size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"
