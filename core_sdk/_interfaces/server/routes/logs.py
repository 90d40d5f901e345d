"""The output of a trial's attempts, by the numbers of its lines."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_sdk._home.attempts.running import attempt_rows
from core_sdk._home.logs.levels import LogLevel
from core_sdk._home.logs.lines import LogFilter, LogPage
from core_sdk._home.rows import AttemptRow
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Id, Query, Rank, Text
from core_sdk._interfaces.server.shared_view import SharedView

Ranks = Annotated[tuple[Rank, ...], msgspec.Meta(max_length=1000)]


class LogsQuery(Query, frozen=True):
    attempt: Id | None = None
    """The newest one with output if it is left out."""
    first: Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)] = 0
    """The number of the first line, counted from 0; a negative one counts from the end."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 500
    rank: Ranks = ()
    """The ranks whose output is given; by default all are."""
    level: LogLevel = "DEBUG"
    """The lowest level of the lines that are given."""
    search: Text = ""
    """The text that the lines contain, in upper or lower case."""


class LogsAnswer(msgspec.Struct, frozen=True):
    attempt: int | None
    """The attempt whose output this is; None if no output was kept."""
    attempts: list[AttemptRow]
    page: LogPage


def logs(shared: SharedView, trial_id: Id, query: LogsQuery) -> LogsAnswer:
    """Returns lines of an attempt's output. A search may give fewer than `limit`; `next_line` says where it goes on."""
    attempts = attempt_rows(shared.home.trial(trial_id))
    kept = [row.attempt for row in attempts if row.log_size_bytes is not None]
    attempt = (kept[-1] if kept else None) if query.attempt is None else query.attempt
    if attempt is None:
        return LogsAnswer(None, attempts, LogPage((), 0, None))
    if attempt not in kept:
        raise RequestError(404, "no_such_attempt", f"no output of attempt {attempt} of trial {trial_id} was kept")
    wanted = LogFilter(query.rank, query.level, query.search)
    return LogsAnswer(attempt, attempts, shared.log_page(trial_id, attempt, query.first, query.limit, wanted))
