"""Text that is never longer than a reader who pays by the token wants."""

from __future__ import annotations

from collections.abc import Iterable

MOST_BYTES = 4096
_OF_COUNT = 40
"""The bytes that the count of lines left out may take."""


def bounded(most_bytes: int, lines: Iterable[str], *, is_end_kept: bool = False) -> str:
    """Returns lines as text, as many as `most_bytes` allow, and how many are left out. A long line is cut."""
    told = list(lines)
    most_of_line = (most_bytes - _OF_COUNT - 3) // min(len(told) or 1, 3)
    kept: list[str] = []
    size_bytes = 0
    for line in reversed(told) if is_end_kept else told:
        cut = line.encode()[:most_of_line].decode(errors="ignore")
        if size_bytes + len(cut.encode()) + 1 > most_bytes - _OF_COUNT:
            break
        kept.append(cut)
        size_bytes += len(cut.encode()) + 1
    left_out = [f"({len(told) - len(kept)} lines left out)"] if len(kept) < len(told) else []
    return "\n".join([*left_out, *reversed(kept)] if is_end_kept else [*kept, *left_out])
