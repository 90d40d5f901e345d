"""The home itself."""

from __future__ import annotations

import msgspec

from core_sdk._execution.experiments.calling import is_master_running
from core_sdk._ground.version import __version__
from core_sdk._home.rows import Reading
from core_sdk._interfaces.server.shared_view import SharedView, Snapshot


class HomeAnswer(msgspec.Struct, frozen=True):
    location: str
    version: str
    num_trials: int
    num_experiments: int
    num_damaged_lines: int
    """Lines of journals that could not be read; everything else was."""
    num_dropped: int
    """Records that a full disk refused while they were written."""
    left_out: list[str]
    """The records of trials and experiments that cannot be read; no list has these."""
    has_master: bool
    can_act: bool
    """False if this server only reads."""
    reading: Reading | None
    """The part of the records that is read, of a server that has just begun to: all other questions wait for that."""
    refuses: list[str] = []
    """What this server does for nobody, such as `experiments/pause` or `queue`; a page over one's own home has none."""
    own_homes: list[str] | None = None
    """The homes, of several that are read as one, in which this server changes something; null for a single home."""


def home(shared: SharedView) -> HomeAnswer:
    """Returns which home is served, and how much of it can be read."""
    reading = shared.reading
    snapshot = shared.snapshot() if reading is None else Snapshot()
    rows = [one.row for one in snapshot.trials.values()]
    return HomeAnswer(
        location=shared.home.location,
        version=__version__,
        num_trials=len(rows),
        num_experiments=len(snapshot.experiments),
        num_damaged_lines=sum(row.num_bad_lines for row in rows),
        num_dropped=sum(row.num_dropped for row in rows),
        left_out=shared.ask(lambda view: view.left_out()) if reading is None else [],
        has_master=is_master_running(shared.home.root),
        can_act=shared.can_act,
        reading=reading,
        own_homes=shared.home.own_homes(),
    )
