"""The model registry of a home: named models, whose versions are checkpoints that nothing may delete."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import ModelRecord, ModelVersionRecord, check_name, from_json
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.folders._files import numbered_entries, read_file, write_file
from core_sdk._home.history import check_listed
from core_sdk.errors import (
    CheckpointProtectedError,
    ModelNotFoundError,
    NameTakenError,
    RecordDamagedError,
)


@dataclass(frozen=True)
class ModelRow:
    model_id: int
    name: str
    description: str
    labels: list[str]
    metadata: dict[str, Any]
    created: float
    updated: float
    is_archived: bool
    num_versions: int
    newest: int | None
    """The number of its newest version."""

    @classmethod
    def recorded(cls, one: ModelRecord) -> Self:
        times, metadata = (one.created, one.updated), from_json(one.metadata)
        versions = len(one.versions), one.versions[-1].version if one.versions else None
        return cls(one.model_id, one.name, one.description, one.labels, metadata, *times, one.is_archived, *versions)


class Registry:
    """The registry of a home, with one file for each model. One process at a time changes the registry."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._directory = home.root / "models"

    def models(self) -> list[ModelRecord]:
        """Returns all models in the order of their ids. Raises `RecordDamagedError`."""
        found = (read_file(self._path(model_id), ModelRecord) for model_id in numbered_entries(self._directory))
        return [record for record in found if record is not None]

    def model(self, id_or_name: int | str) -> ModelRecord:
        """Returns the model of this id or name. Raises `ModelNotFoundError` or `RecordDamagedError`."""
        for record in self.models():
            if id_or_name in (record.model_id, record.name):
                return record
        raise ModelNotFoundError(id_or_name, self._home.root)

    def create(self, name: str, description: str, metadata: Mapping[str, Any], labels: Sequence[str]) -> ModelRecord:
        """Makes a model without versions. Raises `InvalidNameError`, `NameTakenError` or `HomeNotWritableError`."""
        check_name("the model's name", name)
        Home.create(self._home.root)
        with self._locked():
            if any(record.name == name for record in self.models()):
                raise NameTakenError(name, "model")
            now = time.time()
            record = ModelRecord(
                model_id=max(numbered_entries(self._directory), default=0) + 1,
                name=name,
                created=now,
                updated=now,
                description=description,
                metadata=dict(metadata),
                labels=list(labels),
            )
            make_directory(self._path(record.model_id).parent)
            write_file(self._path(record.model_id), record)
        return record

    @contextlib.contextmanager
    def edit(self, model_id: int) -> Iterator[ModelRecord]:
        """Yields the record to be changed, and writes it at the end of the block. Raises `ModelNotFoundError`."""
        if not self._path(model_id).exists():
            raise ModelNotFoundError(model_id, self._home.root)
        with self._locked():
            record = self.model(model_id)
            before = msgspec.json.encode(record)
            yield record
            if msgspec.json.encode(record) != before:
                record.updated = time.time()
                write_file(self._path(model_id), record)

    def register(
        self, model_id: int, folder: TrialFolder, storage_id: str, name: str, notes: str
    ) -> ModelVersionRecord:
        """Makes a checkpoint of the trial the newest version of the model.

        Raises `CheckpointNotFoundError` for one that was deleted.
        """
        with self.edit(model_id) as record:
            check_listed(folder, storage_id)
            record.last_version += 1
            version = ModelVersionRecord(
                version=record.last_version, checkpoint=storage_id, created=time.time(), name=name, notes=notes
            )
            record.versions.append(version)
        return version

    @contextlib.contextmanager
    def deleting(self, storage_ids: Collection[str], *, despite_damage: bool = False) -> Iterator[None]:
        """Keeps these checkpoints from becoming versions of a model while the block deletes them.

        Raises `CheckpointProtectedError` if one of them is a version of a model. Raises `RecordDamagedError` if a
        model's record is damaged, since it may name one, unless `despite_damage` is set.
        """
        with self._locked():
            registered: dict[str, list[str]] = {}
            try:
                registered = read_registered(self._home)
            except RecordDamagedError:
                if not despite_damage:
                    raise
            for storage_id in registered.keys() & set(storage_ids):
                reasons = [f"it is {version}" for version in registered[storage_id]]
                raise CheckpointProtectedError(storage_id, reasons, can_be_forced=False, is_registered=True)
            yield

    def delete(self, model_id: int) -> None:
        """Deletes the model. Its checkpoints stay, but are not protected. The empty folder keeps the id taken."""
        with self._locked():
            self._path(model_id).unlink(missing_ok=True)

    def _path(self, model_id: int) -> Path:
        return self._directory / str(model_id) / "model.json"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_directory(self._directory, exist_ok=True)
        with file_lock(self._directory / "models.lock"):
            yield


def read_registered(home: Home) -> dict[str, list[str]]:
    """Returns descriptions of the model versions, for people, by storage id. Raises `RecordDamagedError`."""
    registered = defaultdict(list)
    for model in Registry(home).models():
        for version in model.versions:
            registered[version.checkpoint].append(f"version {version.version} of the model {model.name!r}")
    return dict(registered)
