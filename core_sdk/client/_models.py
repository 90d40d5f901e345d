"""The model registry: named models, whose versions are checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core_sdk._execution.steering import models
from core_sdk._execution.steering.checks import checked_text
from core_sdk._execution.steering.models import version_of
from core_sdk._ground.records import ModelRecord, ModelVersionRecord, from_json
from core_sdk._home import Home, open_view
from core_sdk._home.registry import Registry
from core_sdk.client._home_object import HomeObject
from core_sdk.client._metrics import to_datetime
from core_sdk.client._objects import Checkpoint
from core_sdk.client._orders.order import OrderBy
from core_sdk.client._unavailable import unavailable


class ModelVersion:
    """A version of a model, which is a checkpoint, as it was when it was looked up. `reload` looks it up again.

    While the version is registered, its checkpoint is neither collected nor deleted.
    """

    def __init__(self, home: Home, model: ModelRecord, record: ModelVersionRecord) -> None:
        self._home = home
        self.model_id = model.model_id
        self.model_version = record.version
        """The number of the version, counted from 1."""
        self._take(model, record)

    def __repr__(self) -> str:
        return f"ModelVersion(model_name={self.model_name!r}, model_version={self.model_version})"

    def _take(self, model: ModelRecord, record: ModelVersionRecord) -> None:
        self.model_name = model.name
        self.checkpoint_uuid = record.checkpoint
        self.name = record.name
        self.notes = record.notes
        self.metadata: dict[str, Any] = from_json(record.metadata)
        self.creation_time = to_datetime(record.created)

    @property
    def checkpoint(self) -> Checkpoint:
        with open_view(self._home) as view:
            return Checkpoint(self._home, view.checkpoint(self.checkpoint_uuid))

    def set_name(self, name: str) -> None:
        models.describe_version(self._home, self.model_id, self.model_version, name=checked_text("name", name))
        self.reload()

    def set_notes(self, notes: str) -> None:
        models.describe_version(self._home, self.model_id, self.model_version, notes=checked_text("notes", notes))
        self.reload()

    def delete(self) -> None:
        """Removes the version from the registry. Its checkpoint stays, and can then be deleted."""
        models.delete_version(self._home, self.model_id, self.model_version)

    def reload(self) -> None:
        """Looks the version up again. Raises `ModelNotFoundError` or `NotFoundError`."""
        model = Registry(self._home).model(self.model_id)
        self._take(model, version_of(model, self.model_version))

    iter_metrics = get_metrics = unavailable(
        "ModelVersion.iter_metrics()", "`iter_metrics(group)` of the trial that used it gives what it reported"
    )


class Model(HomeObject[ModelRecord]):
    """A model of the registry as it was when it was looked up. `reload` looks it up again."""

    def __repr__(self) -> str:
        return f"Model(model_id={self.model_id}, name={self.name!r})"

    def _read(self) -> ModelRecord:
        return Registry(self._home).model(self.model_id)

    def _take(self, record: ModelRecord) -> None:
        self.model_id = self._id = record.model_id
        self.name = record.name
        self.description = record.description
        self.creation_time = to_datetime(record.created)
        self.last_updated_time = to_datetime(record.updated)
        self.metadata: dict[str, Any] = from_json(record.metadata)
        self.labels = list(record.labels)
        self.archived = record.is_archived
        self.num_versions = len(record.versions)

    def register_version(self, checkpoint_uuid: str, *, name: str = "", notes: str = "") -> ModelVersion:
        """Makes a checkpoint the newest version, with an optional name and notes.

        Raises `CheckpointNotFoundError`, also for a checkpoint that was deleted.
        """
        record = models.register(self._home, checkpoint_uuid, self.model_id, name=name, notes=notes)
        self.reload()
        return ModelVersion(self._home, self._read(), record)

    def get_version(self, version: int = -1) -> ModelVersion | None:
        """Returns the version of this number, or the newest one by default; None if the model has no versions.

        Raises `NotFoundError` for a number that no version has.
        """
        model = self._read()
        if version == -1:
            return ModelVersion(self._home, model, model.versions[-1]) if model.versions else None
        return ModelVersion(self._home, model, version_of(model, version))

    def list_versions(self, order_by: OrderBy = OrderBy.DESC) -> list[ModelVersion]:
        """Lists the versions by their numbers."""
        model = self._read()
        versions = [ModelVersion(self._home, model, record) for record in model.versions]
        return versions if order_by is OrderBy.ASC else versions[::-1]

    get_versions = list_versions

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds or replaces keys. Raises `TypeError` for values that JSON cannot keep."""
        self._do(models.add_metadata, metadata)

    def remove_metadata(self, keys: Iterable[str]) -> None:
        """Removes keys. Those that the model does not have are ignored."""
        self._do(models.remove_metadata, keys)

    def set_labels(self, labels: Iterable[str]) -> None:
        self._do(models.set_labels, labels)

    def set_description(self, description: str) -> None:
        self._do(models.describe, description)

    def archive(self) -> None:
        self._do(models.archive)

    def unarchive(self) -> None:
        self._do(models.unarchive)

    def delete(self) -> None:
        """Deletes the model with its versions. Their checkpoints stay, and can then be deleted."""
        models.delete(self._home, self.model_id)

    move_to_workspace = unavailable("Model.move_to_workspace()", "There are no workspaces: labels tell models apart")
