"""`core-sdk queue …`."""

from __future__ import annotations

from dataclasses import dataclass

from core_sdk.cli._group import command_group
from core_sdk.cli._home import make_home
from core_sdk.cli.master.status import read_status
from core_sdk.cli.render.output import AsJson, Format, print_rows
from core_sdk.cli.render.tables import Column
from core_sdk.cli.render.text import printable
from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError
from core_sdk.tracking import Home

app = command_group()


@dataclass(frozen=True)
class QueueRow:
    experiment_id: int
    name: str
    state: str
    priority: int
    num_running: int
    num_waiting: int
    suspended: str
    """The reason why it stands still although it is active."""


@app.command("list")
def list_queue(as_json: AsJson = False) -> None:
    """List the experiments that have not ended, in the order in which they get slots."""
    status = read_status()
    home = make_home()
    rows = [
        QueueRow(
            found.experiment_id,
            _name(home, found.experiment_id),
            found.state,
            found.priority,
            len(found.running),
            found.waiting,
            found.suspended,
        )
        for found in sorted(status.experiments if status else (), key=lambda one: (one.priority, one.experiment_id))
    ]
    columns: list[Column[QueueRow]] = [
        Column("Experiment", lambda row: row.experiment_id, is_number=True),
        Column("Name", lambda row: printable(row.name), can_be_cut=True),
        Column("State", lambda row: row.state),
        Column("Priority", lambda row: row.priority, is_number=True),
        Column("Running", lambda row: row.num_running, is_number=True),
        Column("Waiting", lambda row: row.num_waiting, is_number=True),
        Column("Problem", lambda row: row.suspended, can_be_cut=True),
    ]
    print_rows(rows, QueueRow, columns, Format.JSON if as_json else Format.TABLE, "No experiment waits or runs.")


def _name(home: Home, experiment_id: int) -> str:
    """Returns the experiment's name; empty if its record is damaged, or has been deleted."""
    try:
        return home.experiment(experiment_id).read().name
    except (ExperimentNotFoundError, RecordDamagedError):
        return ""
