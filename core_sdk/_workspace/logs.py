"""The output of a trial of a workspace, which its server reads line by line."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator
from urllib.parse import urlencode

import msgspec

from core_sdk._home.logs.levels import LogLevel
from core_sdk._home.logs.lines import LogLine, LogPage
from core_sdk._home.pushes import find_login
from core_sdk._home.rows import AttemptRow
from core_sdk._workspace.connection import WorkspaceConnection

_PAUSE_S = 1.0


class _OutputPage(msgspec.Struct):
    attempts: list[AttemptRow]
    page: LogPage


class OutputAfar:
    """The output of a trial. Its methods raise `WorkspaceError`."""

    def __init__(
        self, address: str, trial_id: int, *, ranks: Collection[int] = (), level: LogLevel = "DEBUG", search: str = ""
    ) -> None:
        found = find_login(address)
        self._connection = WorkspaceConnection(found.url, found.token)
        self._trial_id = trial_id
        self._wanted: list[tuple[str, object]] = [
            ("level", level),
            *(("rank", rank) for rank in ranks),
            *([("search", search)] if search else []),
        ]

    def attempts(self) -> list[AttemptRow]:
        """Returns the attempts whose output was kept."""
        return _kept(self._connection.get(f"trials/{self._trial_id}/logs?limit=1", _OutputPage))

    def read(self, attempt: int, first: int = 0, *, follow: bool = False) -> Iterator[LogLine]:
        """Yields the wanted lines of an attempt, from line `first` on, which counts from the end if it is negative.

        With `follow`, lines that are written later follow until the attempt has ended.
        """
        while True:
            query = urlencode([("attempt", attempt), ("first", first), *self._wanted])
            found = self._connection.get(f"trials/{self._trial_id}/logs?{query}", _OutputPage)
            runs = any(row.is_running for row in found.attempts if row.attempt == attempt)
            goes_on = follow and runs
            end = found.page.num_lines - (goes_on and not found.page.is_last_whole)
            yield from (line for line in found.page.lines if line.number < end)
            if found.page.next_line is not None:
                first = found.page.next_line
            elif goes_on:
                first = end
                time.sleep(_PAUSE_S)
            else:
                return

    def last(self, attempt: int, num_lines: int) -> Iterator[LogLine]:
        """Returns the last of the wanted lines."""
        is_everything = self._wanted == [("level", "DEBUG")]
        return iter(deque(self.read(attempt, -num_lines if is_everything else 0), maxlen=num_lines))


def _kept(found: _OutputPage) -> list[AttemptRow]:
    return [row for row in found.attempts if row.log_size_bytes is not None]
