"""`core-sdk slot …`."""

from __future__ import annotations

from dataclasses import dataclass

from core_sdk.cli._group import command_group
from core_sdk.cli.master.status import read_status
from core_sdk.cli.render.output import AsJson, Format, print_rows
from core_sdk.cli.render.tables import Column

app = command_group()


@dataclass(frozen=True)
class SlotRow:
    slot: int
    gpu: str | None
    """CUDA's name of it; None for a place on the CPU."""
    experiment_id: int | None
    trial_id: int | None


@app.command("list")
def list_slots(as_json: AsJson = False) -> None:
    """List the slots of this machine, and the trials on them."""
    from core_sdk.master.machine import Machine

    found = read_status() or {"experiments": [], **Machine.here().description}
    users = {
        slot: (experiment["experiment_id"], trial["trial_id"])
        for experiment in found["experiments"]
        for trial in experiment["running"]
        for slot in trial["slots"]
    }
    gpus = found["gpus"] or [None] * found["num_slots"]
    rows = [SlotRow(slot, gpu, *users.get(slot, (None, None))) for slot, gpu in enumerate(gpus)]
    columns: list[Column[SlotRow]] = [
        Column("Slot", lambda row: str(row.slot), is_number=True),
        Column("Device", lambda row: "CPU" if row.gpu is None else f"GPU {row.gpu}"),
        Column("Experiment", lambda row: _text(row.experiment_id), is_number=True),
        Column("Trial", lambda row: _text(row.trial_id), is_number=True),
    ]
    print_rows(rows, SlotRow, columns, Format.JSON if as_json else Format.TABLE, "This machine has no slots.")


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
