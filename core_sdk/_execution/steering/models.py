"""Changes the models of the registry and their versions. Every verb raises `ModelNotFoundError` for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core_sdk._execution.steering.checks import checked_keys, checked_labels, checked_metadata, checked_text
from core_sdk._ground.records import ModelRecord, ModelVersionRecord
from core_sdk._home import Home, open_view
from core_sdk._home.registry import Registry
from core_sdk.errors import ModelVersionNotFoundError


def create(
    home: Home,
    name: str,
    *,
    description: str = "",
    metadata: Mapping[str, Any] | None = None,
    labels: Iterable[str] = (),
) -> ModelRecord:
    """Makes a model without versions. Raises `NameTakenError`, `InvalidNameError` or `TypeError`."""
    text = checked_text("the description", description)
    return Registry(home).create(name, text, checked_metadata(metadata or {}), checked_labels(labels))


def describe(home: Home, model_id: int, description: str) -> None:
    with Registry(home).edit(model_id) as record:
        record.description = checked_text("the description", description)


def label(home: Home, model_id: int, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
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


def archive(home: Home, model_id: int) -> None:
    """Hides the model from lists."""
    with Registry(home).edit(model_id) as record:
        record.is_archived = True


def unarchive(home: Home, model_id: int) -> None:
    """Shows the model in lists again."""
    with Registry(home).edit(model_id) as record:
        record.is_archived = False


def delete(home: Home, model_id: int) -> None:
    """Deletes the model with its versions. Their checkpoints stay, and can then be deleted."""
    registry = Registry(home)
    registry.delete(registry.model(model_id).model_id)


def register(home: Home, model_id: int, storage_id: str, *, name: str = "", notes: str = "") -> ModelVersionRecord:
    """Makes a checkpoint the newest version of the model. It can then be neither collected nor deleted.

    Raises `CheckpointNotFoundError`, also for a checkpoint that was deleted.
    """
    texts = checked_text("the name", name), checked_text("the notes", notes)
    with open_view(home) as view:
        row = view.checkpoint(storage_id)
    return Registry(home).register(model_id, home.folder(row.trial_id), row.storage_id, *texts)


def describe_version(
    home: Home, model_id: int, version: int, *, name: str | None = None, notes: str | None = None
) -> None:
    """Changes what is not None. Raises `ModelVersionNotFoundError` or `TypeError`."""
    with Registry(home).edit(model_id) as record:
        found = version_of(record, version)
        found.name = found.name if name is None else checked_text("the name", name)
        found.notes = found.notes if notes is None else checked_text("the notes", notes)


def delete_version(home: Home, model_id: int, version: int) -> None:
    """Removes a version. Its checkpoint stays, and can then be deleted. Raises `ModelVersionNotFoundError`."""
    with Registry(home).edit(model_id) as record:
        record.versions.remove(version_of(record, version))


def version_of(model: ModelRecord, version: int) -> ModelVersionRecord:
    """Returns the version of this number. Raises `ModelVersionNotFoundError`."""
    for record in model.versions:
        if record.version == version:
            return record
    raise ModelVersionNotFoundError(model.name, version)
