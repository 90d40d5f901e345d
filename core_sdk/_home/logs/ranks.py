"""Picks the output of single ranks out of a launcher's output, in which each line begins with `[rank=N] `."""

from __future__ import annotations

import re
from collections.abc import Collection

_PREFIX = re.compile(rb"\[rank=(\d+)\] ")
_MAX_PREFIX_BYTES = 64
_UNFINISHED_PREFIX = re.compile(rb"\[rank=\d*\]?")


class RankFilter:
    """Takes the output of one attempt, in any chunks, and returns the lines of the chosen ranks.

    The lines of one rank come without their prefixes, the lines of several ranks with them. If no launcher wrote the
    output (`is_launched`), all lines belong to rank 0. Lines of the launcher itself belong to no rank.
    """

    def __init__(self, ranks: Collection[int], *, is_launched: bool) -> None:
        self._ranks = frozenset(ranks)
        self._is_launched = is_launched
        self._held = b""
        self._last_end = b"\n"
        """The end of the last piece; empty in the middle of one."""
        self._is_chosen = False

    def feed(self, chunk: bytes) -> bytes:
        """Returns the chosen part of the chunk. A line that has not ended is included as soon as its rank is known."""
        # Each update of a progress bar has a prefix of its own.
        pieces = (self._held + chunk).splitlines(keepends=True)
        is_at_start = len(pieces) > 1 or self._last_end
        self._held = pieces.pop() if pieces and is_at_start and _may_become_prefix(pieces[-1]) else b""
        return b"".join(map(self._choose, pieces))

    def finish(self) -> bytes:
        """Returns the rest, at the end of the output."""
        held, self._held = self._held, b""
        return self._choose(held)

    def _choose(self, piece: bytes) -> bytes:
        prefix = _PREFIX.match(piece) if self._last_end else None
        if prefix is not None:
            self._is_launched = True
            self._is_chosen = int(prefix[1]) in self._ranks
            piece = piece if len(self._ranks) > 1 else piece[prefix.end() :]
        elif self._last_end == b"\n":
            self._is_chosen = 0 in self._ranks and not self._is_launched
        self._last_end = piece[-1:] if piece.endswith((b"\n", b"\r")) else b""
        return piece if self._is_chosen else b""


def _may_become_prefix(piece: bytes) -> bool:
    return b"[rank=".startswith(piece) or _UNFINISHED_PREFIX.fullmatch(piece) is not None


class RankSearch:
    """Finds the ranks whose lines it is fed with, in any chunks."""

    def __init__(self) -> None:
        self.found: set[int] = set()
        """Empty if no launcher wrote the output."""
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        # Of a line that has not ended, only its beginning counts.
        self.found |= {int(match[1]) for line in (*lines, self._rest) if (match := _PREFIX.match(line))}
        self._rest = self._rest[:_MAX_PREFIX_BYTES]


def check_rank_ids(rank_ids: Collection[int]) -> None:
    if not rank_ids or min(rank_ids) < 0:
        raise ValueError(f"rank_ids is {list(rank_ids)}: give ranks, counted from 0, or None for the whole output")
