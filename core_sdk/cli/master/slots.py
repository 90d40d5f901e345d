"""`core-sdk slot …`."""

from __future__ import annotations

from core_sdk.cli._group import command_group
from core_sdk.cli.master.status import read_status
from core_sdk.cli.render.output import AsJson, Format, print_rows
from core_sdk.cli.render.tables import Column
from core_sdk.master.occupancy import OccupiedSlot, occupied_slots

app = command_group()


@app.command("list")
def list_slots(as_json: AsJson = False) -> None:
    """List the slots of this machine and of the Ray clusters that experiments use, and the trials on them."""
    from core_sdk.master.machine import status_without_master

    rows = occupied_slots(read_status() or status_without_master())
    has_nodes = any(row.node for row in rows)
    columns: list[Column[OccupiedSlot]] = [
        *([Column[OccupiedSlot]("Node", lambda row: row.node or "here")] if has_nodes else []),
        Column("Slot", lambda row: row.slot, is_number=True),
        Column("Device", lambda row: row.device),
        Column("Experiment", lambda row: row.experiment_id, is_number=True),
        Column("Trial", lambda row: row.trial_id, is_number=True),
    ]
    print_rows(rows, OccupiedSlot, columns, Format.JSON if as_json else Format.TABLE, "This machine has no slots.")
