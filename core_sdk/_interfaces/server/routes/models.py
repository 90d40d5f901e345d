"""The model registry: models, their versions, and the way of the checkpoints that these are."""

from __future__ import annotations

from typing import Any

import msgspec

from core_sdk._ground.records import ModelVersionRecord, from_json
from core_sdk._home.finding.lineage import Stretch, read_lineage
from core_sdk._home.registry import ModelRow, Registry
from core_sdk._home.rows import CheckpointRow
from core_sdk._interfaces.server.route import Id, Query
from core_sdk._interfaces.server.routes.checkpoints import StorageId
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk.errors import CheckpointNotFoundError


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
    """The checkpoint; None if its trial was deleted by force."""


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


def list_models(shared: SharedView, query: ModelsQuery) -> ModelsAnswer:
    """Returns the models of the registry."""
    found = Registry(shared.home).models()
    return ModelsAnswer([ModelRow.recorded(one) for one in found if query.archived or not one.is_archived])


def model(shared: SharedView, model_id: Id) -> ModelVersionsAnswer:
    """Returns a model with its versions and their checkpoints."""
    found = Registry(shared.home).model(model_id)
    return ModelVersionsAnswer(ModelRow.recorded(found), [_version(shared, one) for one in reversed(found.versions)])


def lineage(shared: SharedView, storage_id: StorageId) -> LineageAnswer:
    """Returns how a checkpoint came to be, and which versions of models it is."""
    stretches = shared.ask(lambda view: read_lineage(view, shared.home, storage_id))
    registered = [
        RegisteredVersion(one.model_id, one.name, version.version)
        for one in Registry(shared.home).models()
        for version in one.versions
        if version.checkpoint == storage_id
    ]
    return LineageAnswer(stretches, registered)


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
