"""Reads the signs of the ranks of a node."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import msgspec

from core_sdk._ground.signs._layout import (
    AT,
    BUSY_SINCE,
    COUNT,
    HAS_ENDED,
    PID,
    SIZE,
    SIZE_BYTES,
    STACKS_SUFFIX,
    SUFFIX,
)


class RankSigns(msgspec.Struct, frozen=True):
    """The signs of a rank so far."""

    rank: int
    pid: int
    count: int
    at: float
    """The time of the last one, by the monotonic clock; 0 before the first."""
    busy_since: float
    """The time since which it validates or saves; 0 if it does not."""
    has_ended: bool
    stacks: Path
    """The file into which it writes its stacks."""


def read_signs(directory: Path) -> list[RankSigns]:
    """Returns the signs of all ranks, in their order."""
    found = []
    for path in directory.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError, ValueError, struct.error):
            numbers = struct.unpack(f"{SIZE}d", path.read_bytes()[:SIZE_BYTES])
            found.append(
                RankSigns(
                    int(path.stem),
                    int(numbers[PID]),
                    int(numbers[COUNT]),
                    numbers[AT],
                    numbers[BUSY_SINCE],
                    bool(numbers[HAS_ENDED]),
                    path.with_suffix(STACKS_SUFFIX),
                )
            )
    return sorted(found, key=lambda each: each.rank)
