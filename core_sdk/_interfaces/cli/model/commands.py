"""`core-sdk model …`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import click

from core_sdk._execution.steering import models
from core_sdk._ground.records import ModelVersionRecord, from_json, strict_json
from core_sdk._home.registry import ModelRow, Registry
from core_sdk._interfaces.cli._arguments import Yes
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._home import in_home, open_home
from core_sdk._interfaces.cli._ids import Model, StorageId
from core_sdk._interfaces.render.form import AsCsv, AsJson, Fields, choose_form
from core_sdk._interfaces.render.output import Properties, confirm, print_one, print_rows
from core_sdk._interfaces.render.tables import Column
from core_sdk._interfaces.render.text import format_time, printable
from core_sdk._interfaces.signatures import Argument, Option

app = command_group()


@dataclass(frozen=True)
class VersionRow:
    version: int
    checkpoint: str
    name: str
    notes: str
    metadata: dict[str, Any]
    created: float


_MODEL_COLUMNS = [
    Column[ModelRow]("ID", lambda row: row.model_id, is_number=True),
    Column[ModelRow]("Name", lambda row: row.name, can_be_cut=True),
    Column[ModelRow]("Versions", lambda row: row.num_versions, is_number=True),
    Column[ModelRow]("Labels", lambda row: ", ".join(row.labels), can_be_cut=True),
    Column[ModelRow]("Changed", lambda row: format_time(row.updated)),
    Column[ModelRow]("Description", lambda row: row.description, can_be_cut=True),
]
_VERSION_COLUMNS = [
    Column[VersionRow]("Version", lambda row: row.version, is_number=True),
    Column[VersionRow]("Checkpoint", lambda row: row.checkpoint),
    Column[VersionRow]("Name", lambda row: row.name, can_be_cut=True),
    Column[VersionRow]("Registered", lambda row: format_time(row.created)),
    Column[VersionRow]("Notes", lambda row: row.notes, can_be_cut=True),
]


@app.command()
def create(
    name: Annotated[str, Argument(help="A name that no other model has.", show_default=False)],
    description: Annotated[str, Option(help="What it is.", show_default=False)] = "",
    label: Annotated[list[str] | None, Option(help="May be repeated.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Make a model, which has no versions yet."""
    record = models.create(open_home(), name, description=description, labels=label or ())
    print_one(ModelRow.recorded(record), f"created model {record.model_id}", choose_form(as_json))


@app.command("list")
def list_models(
    archived: Annotated[bool, Option("--all", help="Also those that are archived.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    fields: Fields = "",
) -> None:
    """List models."""
    form = choose_form(as_json, as_csv, fields)
    home = open_home()
    rows = [ModelRow.recorded(record) for record in Registry(home).models() if archived or not record.is_archived]
    print_rows(rows, ModelRow, _MODEL_COLUMNS, form, f"No models {in_home(home)}.")


@app.command()
def describe(model: Model, as_json: AsJson = False, fields: Fields = "") -> None:
    """Show what is known of a model."""
    row = ModelRow.recorded(Registry(open_home()).model(model))
    properties: Properties = {
        "Model": row.model_id,
        "Name": row.name,
        "Description": row.description,
        "Labels": ", ".join(row.labels),
        "Versions": row.num_versions,
        "Metadata": [f"{key}: {strict_json(value)}" for key, value in row.metadata.items()],
        "Created": format_time(row.created),
        "Archived": "yes" if row.is_archived else "",
    }
    print_one(row, properties, choose_form(as_json, fields=fields))


@app.command()
def register_version(
    model: Model,
    storage_id: StorageId,
    name: Annotated[str, Option(help="What to call the version.", show_default=False)] = "",
    notes: Annotated[str, Option(help="What to know of it.", show_default=False)] = "",
    as_json: AsJson = False,
) -> None:
    """Make a checkpoint the newest version of a model. It can then be neither collected nor deleted."""
    version = models.register(open_home(), storage_id, model, name=name, notes=notes)
    print_one(
        _version_row(version), f"registered checkpoint {storage_id} as version {version.version}", choose_form(as_json)
    )


@app.command()
def list_versions(model: Model, as_json: AsJson = False, as_csv: AsCsv = False, fields: Fields = "") -> None:
    """List the versions of a model, the newest first."""
    form = choose_form(as_json, as_csv, fields)
    rows = [_version_row(record) for record in reversed(Registry(open_home()).model(model).versions)]
    print_rows(rows, VersionRow, _VERSION_COLUMNS, form, "No versions.")


@app.command()
def delete(
    model: Model,
    version: Annotated[
        int | None, Option(min=1, help="Only this version.", show_default="the model with all versions")
    ] = None,
    yes: Yes = False,
) -> None:
    """Take a model, or one version of it, out of the registry. The checkpoints stay, and can be deleted then."""
    home = open_home()
    record = Registry(home).model(model)
    if version is None:
        what = f"model {model}"
        confirm(f"Delete {what}, {printable(record.name)!r}, with {len(record.versions)} versions?", yes)
        models.delete(home, model)
    else:
        what = f"version {version} of model {model}"
        models.version_of(record, version)  # an unknown one fails before anything is asked
        confirm(f"Delete {what}, {printable(record.name)!r}?", yes)
        models.delete_version(home, model, version)
    click.echo(f"deleted {what}")


def _version_row(one: ModelVersionRecord) -> VersionRow:
    return VersionRow(one.version, one.checkpoint, one.name, one.notes, from_json(one.metadata), one.created)
