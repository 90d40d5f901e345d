"""A pointer to the files of a checkpoint."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Self

from core_sdk._ground.records import CheckpointStored, from_json
from core_sdk._home.storage import storage_from_url

_METADATA_FILE = ".metadata.json"


class Checkpoint:
    """A directory with the files of a checkpoint, or a checkpoint that was stored."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        """The directory, or for a checkpoint in a bucket its URL."""
        self.storage_id: str | None = None
        """The id of a checkpoint that was stored, by which `core-sdk checkpoint` knows it."""
        self._storage_url = ""

    @classmethod
    def from_directory(cls, path: str | Path) -> Self:
        """Makes a checkpoint of the files in this directory. Nothing is copied before `report()`."""
        return cls(path)

    @classmethod
    def stored(cls, storage_url: str, storage_id: str) -> Self:
        """Returns a checkpoint that a trial has stored."""
        prefix = storage_url.removeprefix("file://")
        checkpoint = cls(f"{prefix.rstrip('/')}/{storage_id}")
        checkpoint.storage_id, checkpoint._storage_url = storage_id, storage_url
        return checkpoint

    def to_directory(self, path: str | Path | None = None) -> str:
        """Copies the files to `path` or to a new temporary directory, and returns it. Stored files are verified."""
        target = Path(path or tempfile.mkdtemp(prefix="checkpoint-"))
        if self.storage_id is None:
            shutil.copytree(self.path, target, dirs_exist_ok=True)
        else:
            with contextlib.closing(storage_from_url(self._storage_url)) as storage:
                storage.download(self.storage_id, target)
        return str(target)

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Yields a directory with the files. Only read it. Stored files are verified; from a bucket they are copied."""
        if self.storage_id is None:
            yield self.path
        else:
            with (
                contextlib.closing(storage_from_url(self._storage_url)) as storage,
                storage.open(self.storage_id) as directory,
            ):
                yield str(directory)

    def get_metadata(self) -> dict[str, Any]:
        """Returns the metadata that `set_metadata()` has written next to the files; empty if there is none."""
        with self.as_directory() as directory:
            file = Path(directory, _METADATA_FILE)
            return dict(json.loads(file.read_text())) if file.exists() else {}

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Writes metadata next to the files, before `report()`. Raises `ValueError` if the checkpoint was stored."""
        if self.storage_id is not None:
            raise ValueError(
                f"checkpoint {self.storage_id} was stored, and does not change any more: set its metadata before "
                "report(), or with `core_sdk.client`"
            )
        Path(self.path, _METADATA_FILE).write_text(json.dumps(dict(metadata)))

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        self.set_metadata({**self.get_metadata(), **metadata})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r})"


class ReportedCheckpointStatus(Enum):
    """The status of a reported checkpoint. A `ReportedCheckpoint` is always stored and recorded."""

    COMMITTED = "COMMITTED"


@dataclass(frozen=True)
class ReportedCheckpoint:
    """A checkpoint, and the metrics that were reported with it."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED

    @classmethod
    def of(cls, record: CheckpointStored) -> Self:
        checkpoint = Checkpoint.stored(record.storage, record.storage_id)
        return cls(checkpoint, from_json(record.metadata.get("metrics") or {}))
