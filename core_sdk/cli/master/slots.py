"""`core-sdk slot …`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core_sdk.cli._group import command_group
from core_sdk.cli.master.status import read_status
from core_sdk.cli.render.output import AsJson, Format, print_rows
from core_sdk.cli.render.tables import Column

app = command_group()


@dataclass(frozen=True)
class SlotRow:
    slot: int
    gpu: str | None
    """CUDA's name of it; None for a place on the CPU, and where Ray gives out the GPUs."""
    experiment_id: int | None
    trial_id: int | None
    node: str = ""
    """The node of a Ray cluster; empty for this machine."""
    device: str = ""


@app.command("list")
def list_slots(as_json: AsJson = False) -> None:
    """List the slots of this machine and of the Ray clusters that experiments use, and the trials on them."""
    from core_sdk.master.machine import Machine

    found = read_status() or {"experiments": [], "clusters": [], **Machine.here().description}
    rows = [*_here(found), *_of_clusters(found)]
    has_nodes = any(row.node for row in rows)
    columns: list[Column[SlotRow]] = [
        *([Column[SlotRow]("Node", lambda row: row.node or "here")] if has_nodes else []),
        Column("Slot", lambda row: str(row.slot), is_number=True),
        Column("Device", lambda row: row.device),
        Column("Experiment", lambda row: _text(row.experiment_id), is_number=True),
        Column("Trial", lambda row: _text(row.trial_id), is_number=True),
    ]
    print_rows(rows, SlotRow, columns, Format.JSON if as_json else Format.TABLE, "This machine has no slots.")


def _here(found: dict[str, Any]) -> list[SlotRow]:
    users = {
        slot: (experiment["experiment_id"], trial["trial_id"])
        for experiment in found["experiments"]
        if not experiment["cluster"]
        for trial in experiment["running"]
        for slot in trial["slots"]
    }
    gpus = found["gpus"] or [None] * found["num_slots"]
    return [
        SlotRow(slot, gpu, *users.get(slot, (None, None)), device="CPU" if gpu is None else f"GPU {gpu}")
        for slot, gpu in enumerate(gpus)
    ]


def _of_clusters(found: dict[str, Any]) -> Iterator[SlotRow]:
    """Which slots of its node a trial has is Ray's affair: they are shown in the order of the trials."""
    for cluster in found["clusters"]:
        for node in cluster["nodes"]:
            users = [
                (experiment["experiment_id"], trial["trial_id"])
                for experiment in found["experiments"]
                if experiment["cluster"] == cluster["address"]
                for trial in experiment["running"]
                if trial["node"] == node["node"]
                for _ in trial["slots"]
            ]
            for slot in range(node["num_slots"]):
                experiment_id, trial_id = users[slot] if slot < len(users) else (None, None)
                yield SlotRow(slot, None, experiment_id, trial_id, node["node"], node["device"])


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
