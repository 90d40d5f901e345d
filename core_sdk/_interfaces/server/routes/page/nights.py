"""What has happened since somebody last looked, and which messages were sent about it."""

from __future__ import annotations

import time

import msgspec

from core_sdk._analysis.night import A_NIGHT_S, has_run, last_look, note_look, read_night
from core_sdk._execution.messages import SentMessage, read_sent
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Query
from core_sdk._interfaces.server.routes.actions import Body, Done
from core_sdk._interfaces.server.routes.metrics import Seconds
from core_sdk._interfaces.server.shared_view import SharedView

_MOST_SENT = 100


class NightQuery(Query, frozen=True):
    since: Seconds | None = None


class Happened(msgspec.Struct, frozen=True):
    kind: str
    """Such as failed, stalled, went back, best."""
    lines: list[str]


class NightAnswer(msgspec.Struct, frozen=True):
    since: float
    until: float
    happened: list[Happened]
    """The most urgent kind first."""
    time: str
    """Where the time of these trials went, in one line."""
    sent: list[SentMessage]
    """The messages that were sent since then, the newest first."""


class LookBody(Body, frozen=True):
    until: Seconds
    """The time up to which somebody has seen what has happened."""


def night(shared: SharedView, query: NightQuery) -> NightAnswer:
    """Returns what has happened since then; by default since the last look, or in the last 12 hours."""
    until = time.time()
    since = query.since if query.since is not None else last_look(shared.home) or until - A_NIGHT_S
    # Of ten thousand trials few have run since, and the snapshot knows which.
    trial_ids = [one.row.trial_id for one in shared.snapshot().trials.values() if has_run(one.row, since)]
    found = shared.ask(lambda view: read_night(shared.home, view, since, until, trial_ids))
    try:
        sent = read_sent(shared.home.root, since, _MOST_SENT)
    except OSError:  # another user's home: who is told of what is nobody else's business
        sent = []
    happened = [Happened(kind, lines) for kind, lines in found.in_order()]
    return NightAnswer(since, until, happened, found.time, sent)


def look(shared: SharedView, body: LookBody) -> Done:
    """Remembers that somebody has seen what has happened up to a time."""
    if not shared.home.root.exists():
        raise RequestError(409, "no_home", "there is no home yet that could remember it", "Its first trial makes it.")
    note_look(shared.home, body.until)
    return Done("remembered")
