"""Changes the models of the registry and their versions. Every verb raises `ModelNotFoundError` for an unknown one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from core_sdk._execution.steering.checks import (
    check_unchanged,
    checked_keys,
    checked_labels,
    checked_metadata,
    checked_text,
)
from core_sdk._execution.steering.verb import verb
from core_sdk._ground.records import ModelRecord, ModelVersionRecord
from core_sdk._home import Home, open_view
from core_sdk._home.registry import Registry
from core_sdk.errors import ModelNotFoundError, NotFoundError


@verb("registry", "create", "created model {answer.model_id}")
def create(
    home: Home,
    name: str,
    *,
    description: str = "",
    metadata: Mapping[str, Any] | None = None,
    labels: Collection[str] = (),
) -> ModelRecord:
    """Makes a model without versions. Raises `NameTakenError`, `InvalidNameError` or `TypeError`."""
    text = checked_text("the description", description)
    return Registry(home).create(name, text, checked_metadata(metadata or {}), checked_labels(labels))


@verb("model", "change", "changed model {model_id}")
def describe(home: Home, model_id: int, description: str, *, description_before: str | None = None) -> None:
    """Changes the description of the model. Raises `TextChangedError` if it is no longer `description_before`."""
    with Registry(home).edit(model_id) as record:
        check_unchanged("the words of the description", record.description, description_before)
        record.description = checked_text("the description", description)


@verb("model", "label", "changed the labels of model {model_id}")
def label(home: Home, model_id: int, *, add: Collection[str] = (), remove: Collection[str] = ()) -> None:
    """Gives the model labels, and takes others away. Raises `InvalidNameError` or `TypeError`."""
    with Registry(home).edit(model_id) as record:
        added, removed = checked_labels(add), checked_labels(remove)
        record.labels = [label for label in dict.fromkeys((*record.labels, *added)) if label not in removed]


def set_labels(home: Home, model_id: int, labels: Iterable[str]) -> None:
    """Replaces all labels. Raises `InvalidNameError` or `TypeError`."""
    with Registry(home).edit(model_id) as record:
        record.labels = checked_labels(labels)


def add_metadata(home: Home, model_id: int, metadata: Mapping[str, Any]) -> None:
    """Adds or replaces keys. Raises `TypeError` for values that JSON cannot keep."""
    with Registry(home).edit(model_id) as record:
        record.metadata |= checked_metadata(metadata)


def remove_metadata(home: Home, model_id: int, keys: Iterable[str]) -> None:
    """Removes keys. Those that the model does not have are ignored."""
    with Registry(home).edit(model_id) as record:
        removed = checked_keys(keys)
        record.metadata = {key: value for key, value in record.metadata.items() if key not in removed}


@verb("model", "archive", "archived model {model_id}")
def archive(home: Home, model_id: int) -> None:
    """Hides the model from lists."""
    with Registry(home).edit(model_id) as record:
        record.is_archived = True


@verb("model", "unarchive", "model {model_id} is in lists again")
def unarchive(home: Home, model_id: int) -> None:
    """Shows the model in lists again."""
    with Registry(home).edit(model_id) as record:
        record.is_archived = False


@verb("model", "delete", "deleted model {model_id}")
def delete(home: Home, model_id: int) -> None:
    """Deletes the model with its versions. Their checkpoints stay, and can then be deleted."""
    registry = Registry(home)
    registry.delete(registry.model(model_id).model_id)


@verb("checkpoint", "register", "registered the checkpoint as version {answer.version} of model {model}")
def register(home: Home, storage_id: str, model: int | str, *, name: str = "", notes: str = "") -> ModelVersionRecord:
    """Makes a checkpoint the newest version of a model. It can then be neither collected nor deleted.

    The model is given by its id or its name; if none has this name, it is made. Raises `CheckpointNotFoundError`, also
    for a checkpoint that was deleted.
    """
    texts = checked_text("the name", name), checked_text("the notes", notes)
    with open_view(home) as view:
        row = view.checkpoint(storage_id)
    registry = Registry(home)
    try:
        model_id = registry.model(model).model_id
    except ModelNotFoundError:
        if isinstance(model, int):
            raise
        model_id = create(home, model).model_id
    return registry.register(model_id, home.folder(row.trial_id), row.storage_id, *texts)


@verb("version", "change", "changed version {version} of model {model_id}")
def describe_version(
    home: Home,
    model_id: int,
    version: int,
    *,
    name: str | None = None,
    notes: str | None = None,
    notes_before: str | None = None,
) -> None:
    """Changes the name or the notes of a version. What is None is left unchanged.

    Raises `NotFoundError`, `TypeError`, or `TextChangedError` if the notes are no longer `notes_before`.
    """
    with Registry(home).edit(model_id) as record:
        found = version_of(record, version)
        check_unchanged("the notes", found.notes, notes_before)
        found.name = found.name if name is None else checked_text("the name", name)
        found.notes = found.notes if notes is None else checked_text("the notes", notes)


@verb("version", "delete", "deleted version {version} of model {model_id}")
def delete_version(home: Home, model_id: int, version: int) -> None:
    """Removes a version. Its checkpoint stays, and can then be deleted. Raises `NotFoundError`."""
    with Registry(home).edit(model_id) as record:
        record.versions.remove(version_of(record, version))


def version_of(model: ModelRecord, version: int) -> ModelVersionRecord:
    """Returns the version of this number. Raises `NotFoundError`."""
    for record in model.versions:
        if record.version == version:
            return record
    raise NotFoundError(
        f"the model {model.name!r} has no version {version}. `core-sdk model list-versions {model.name}` shows those "
        "it has."
    )
