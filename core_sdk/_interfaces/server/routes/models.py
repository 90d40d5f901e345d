"""The model registry: models, their versions, and the way of the checkpoints that these are."""

from __future__ import annotations

from typing import Any

import msgspec

from core_sdk._execution.steering import models
from core_sdk._ground.records import ModelVersionRecord, from_json
from core_sdk._home.finding.lineage import Stretch, read_lineage
from core_sdk._home.registry import ModelRow, Registry
from core_sdk._home.rows import CheckpointRow
from core_sdk._interfaces.server.route import Id, Query
from core_sdk._interfaces.server.routes.actions import Body, Done, Labels, LabelsBody
from core_sdk._interfaces.server.routes.checkpoints import StorageId
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk.errors import CheckpointNotFoundError, ModelNotFoundError


class ModelsQuery(Query, frozen=True):
    archived: bool = False
    """Whether to list also those that are archived."""


class ModelsAnswer(msgspec.Struct, frozen=True):
    models: list[ModelRow]


class VersionAnswer(msgspec.Struct, frozen=True):
    version: int
    name: str
    notes: str
    created: float
    metadata: dict[str, Any]
    storage_id: str
    checkpoint: CheckpointRow | None
    """None if its trial was deleted by force."""


class ModelVersionsAnswer(msgspec.Struct, frozen=True):
    model: ModelRow
    versions: list[VersionAnswer]
    """The newest first."""


class RegisteredVersion(msgspec.Struct, frozen=True):
    model_id: int
    model_name: str
    version: int


class LineageAnswer(msgspec.Struct, frozen=True):
    stretches: list[Stretch]
    """The attempts that led to the checkpoint, the last one first."""
    registered: list[RegisteredVersion]
    """The versions of models that the checkpoint is."""


class NewModelBody(Body, frozen=True):
    name: str
    description: str = ""
    labels: Labels = []


class ModelBody(Body, frozen=True):
    description: str


class RegisterBody(Body, frozen=True):
    model: str
    """The name of the model. One that has this name is made if there is none."""
    name: str = ""
    notes: str = ""


class VersionBody(Body, frozen=True):
    """Fields that are null are left unchanged."""

    name: str | None = None
    notes: str | None = None


def list_models(shared: SharedView, query: ModelsQuery) -> ModelsAnswer:
    """Returns the models of the registry."""
    found = _registry(shared).models()
    return ModelsAnswer([ModelRow.recorded(one) for one in found if query.archived or not one.is_archived])


def model(shared: SharedView, model_id: Id) -> ModelVersionsAnswer:
    """Returns a model with its versions and their checkpoints."""
    found = _registry(shared).model(model_id)
    return ModelVersionsAnswer(ModelRow.recorded(found), [_version(shared, one) for one in reversed(found.versions)])


def lineage(shared: SharedView, storage_id: StorageId) -> LineageAnswer:
    """Returns how a checkpoint came to be, and which versions of models it is."""
    stretches = shared.ask(lambda view: read_lineage(view, shared.home, storage_id))
    registered = [
        RegisteredVersion(one.model_id, one.name, version.version)
        for one in _registry(shared).models()
        for version in one.versions
        if version.checkpoint == storage_id
    ]
    return LineageAnswer(stretches, registered)


def create_model(shared: SharedView, body: NewModelBody) -> Done:
    """Makes a model, which has no versions yet."""
    made = models.create(shared.home, body.name, description=body.description, labels=body.labels)
    return Done(f"created model {made.model_id}")


def change_model(shared: SharedView, model_id: Id, body: ModelBody) -> Done:
    """Changes the description of a model."""
    models.describe(shared.home, model_id, body.description)
    return Done(f"changed model {model_id}")


def label_model(shared: SharedView, model_id: Id, body: LabelsBody) -> Done:
    """Gives a model labels, or takes them away."""
    models.label(shared.home, model_id, add=body.add, remove=body.remove)
    return Done(f"changed the labels of model {model_id}")


def archive_model(shared: SharedView, model_id: Id) -> Done:
    """Hides a model from lists."""
    models.archive(shared.home, model_id)
    return Done(f"archived model {model_id}")


def unarchive_model(shared: SharedView, model_id: Id) -> Done:
    """Shows a model in lists again."""
    models.unarchive(shared.home, model_id)
    return Done(f"model {model_id} is in lists again")


def delete_model(shared: SharedView, model_id: Id) -> Done:
    """Takes a model with all its versions out of the registry; the checkpoints stay."""
    models.delete(shared.home, model_id)
    return Done(f"deleted model {model_id}")


def register(shared: SharedView, storage_id: StorageId, body: RegisterBody) -> Done:
    """Makes a checkpoint the newest version of a model. It can then be neither collected nor deleted."""
    home = shared.home
    shared.ask(lambda view: view.checkpoint(storage_id))  # an unknown one fails before a model is made
    try:
        found = _registry(shared).model(body.model)
    except ModelNotFoundError:
        found = models.create(home, body.model)
    version = models.register(home, found.model_id, storage_id, name=body.name, notes=body.notes)
    return Done(f"registered the checkpoint as version {version.version} of model {found.model_id}")


def change_version(shared: SharedView, model_id: Id, version: Id, body: VersionBody) -> Done:
    """Changes the name or the notes of a version."""
    models.describe_version(shared.home, model_id, version, name=body.name, notes=body.notes)
    return Done(f"changed version {version} of model {model_id}")


def delete_version(shared: SharedView, model_id: Id, version: Id) -> Done:
    """Takes a version out of the registry; its checkpoint stays, and can be deleted then."""
    models.delete_version(shared.home, model_id, version)
    return Done(f"deleted version {version} of model {model_id}")


def _registry(shared: SharedView) -> Registry:
    return Registry(shared.home)


def _version(shared: SharedView, record: ModelVersionRecord) -> VersionAnswer:
    try:
        row = shared.ask(lambda view: view.checkpoint(record.checkpoint))
    except CheckpointNotFoundError:
        row = None
    return VersionAnswer(
        version=record.version,
        name=record.name,
        notes=record.notes,
        created=record.created,
        metadata=from_json(record.metadata),
        storage_id=record.checkpoint,
        checkpoint=row,
    )
