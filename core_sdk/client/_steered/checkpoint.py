"""Checkpoints: what is known of them, and their verbs."""

from __future__ import annotations

import contextlib
import enum
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core_sdk._execution.steering import checkpoints
from core_sdk._ground.importing import needing_torch
from core_sdk._home import open_view
from core_sdk._home.opening import HomeElsewhere
from core_sdk._home.rows import CheckpointRow
from core_sdk.client._metrics import to_datetime
from core_sdk.client._notebook import Shown
from core_sdk.client._orders.order import CheckpointState
from core_sdk.client._unavailable import unavailable

if TYPE_CHECKING:
    from core_sdk._analysis.tensors import Exported, StoredTensor


class DownloadMode(enum.Enum):
    """The way in which files are downloaded. All modes mean the same here: files come from the storage."""

    DIRECT = "direct"
    MASTER = "master"
    AUTO = "auto"


class SteeredCheckpoint(Shown[CheckpointRow]):
    """A checkpoint as it was when it was looked up, and its verbs."""

    def __repr__(self) -> str:
        return f"Checkpoint(uuid={self.uuid!r}, trial_id={self.trial_id}, state={self.state.name})"

    def _facts(self) -> Mapping[str, object]:
        return {
            "Checkpoint": self.uuid,
            "Trial": self.trial_id,
            "State": self.state.name,
            "Steps": self.steps_completed,
            "Stored": f"{self.report_time:%Y-%m-%d %H:%M:%S}",
            "Size": f"{self.size_bytes / 1e6:,.1f} MB in {len(self.resources)} files",
            "Storage": self.storage,
            "Pinned": self.pin_note or "yes" if self.is_pinned else None,
        }

    def _read(self) -> CheckpointRow:
        with open_view(self._home) as view:
            return view.checkpoint(self.uuid)

    def _take(self, row: CheckpointRow) -> None:
        self._row = row
        self.uuid = self._id = row.storage_id
        self.trial_id = row.trial_id
        self.experiment_id = row.experiment_id
        self.trial_run_id = row.attempt
        self.steps_completed = row.steps_completed
        self.task_id = f"trial-{row.trial_id}"
        self.allocation_id = f"trial-{row.trial_id}.{row.attempt}"
        self.state = CheckpointState[row.state]
        self.report_time = to_datetime(row.time)
        self.metadata = row.metadata
        self.resources = row.resources
        self.size_bytes = row.size_bytes
        self.storage = row.storage
        self.is_pinned = row.is_pinned
        self.pin_note = row.pin_note

    def download(self, path: str | os.PathLike[str] | None = None, mode: DownloadMode | str = DownloadMode.AUTO) -> str:
        """Copies the files into the directory `path`, by default `checkpoints/<uuid>`, and returns that path.

        Every file is verified. Files that are already there and intact are not copied again, so that an interrupted
        download can be continued. metadata.json has the metadata as stored, without later changes. Raises
        `CheckpointNotFoundError`, `CheckpointDamagedError`, `NotEnoughSpaceError`, or a `StorageError`.
        """
        DownloadMode(mode)  # raises ValueError for an unknown mode
        directory = Path("checkpoints", self.uuid) if path is None else Path(path)
        if isinstance(self._home, HomeElsewhere):
            from core_sdk._workspace.checkpoints import download_checkpoint  # requests, which other calls do not need

            download_checkpoint(self._home.address, self.uuid, self.resources, directory)
            return str(directory)
        from core_sdk._home.storage import storage_from_url  # imported here, since most calls do not need it

        with contextlib.closing(storage_from_url(self.storage)) as storage:
            storage.download(self.uuid, directory)
        return str(directory)

    def tensors(self) -> list[StoredTensor]:
        """Returns the name, dtype and shape of each tensor, in the order of the files.

        They are not loaded. From a bucket the files of `torch.save()` and of safetensors are fetched first. A file that
        `torch.load(weights_only=True)` refuses is left out with a warning, or if no other file has tensors, raises
        `CheckpointError`.
        """
        from core_sdk._home.storage import storage_from_url

        with needing_torch("reading tensors"):
            from core_sdk._analysis.tensors import describe

        with contextlib.closing(storage_from_url(self.storage)) as storage:
            return describe(storage, self.uuid)

    def export(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        file: str | None = None,
        part: str = "",
        dtype: Literal["fp32", "fp16", "bf16"] | None = None,
        max_shard_bytes: int | None = None,
        index: bool = False,
        tensors_only: bool = False,
    ) -> Exported:
        """Writes the tensors into safetensors files in the new directory `path`, by default `exports/<uuid>`.

        `part`, such as "model", chooses the tensors whose names begin with it and a dot, and removes that from the
        names. `dtype` converts floating-point numbers. `max_shard_bytes` divides the tensors over several files, and
        `index` writes their index also for a single one. Of tied tensors the first is written. The directory appears
        when it is complete.

        Raises `FileExistsError` if `path` exists; `CheckpointError` for values that are no tensors, unless
        `tensors_only` leaves them out, and if several files hold tensors and `file` names none of them;
        `MissingDependencyError` without safetensors; and the errors of `verify`.
        """
        from core_sdk._home.storage import storage_from_url

        with needing_torch("reading tensors"):
            from core_sdk._analysis.tensors import export

        with contextlib.closing(storage_from_url(self.storage)) as storage:
            return export(
                storage,
                self.uuid,
                Path("exports", self.uuid) if path is None else Path(path),
                file=file,
                part=part,
                dtype=dtype,
                max_shard_bytes=max_shard_bytes,
                with_index=index,
                tensors_only=tensors_only,
            )

    def verify(self) -> None:
        """Reads every stored file. Raises `CheckpointNotFoundError`, or `CheckpointDamagedError` naming the bad file.

        A `StorageError` means that the checkpoint could not be read. It may still be intact.
        """
        checkpoints.verify(self._home, self.uuid)

    def write_metadata_file(self, path: str | os.PathLike[str]) -> None:
        """Writes `metadata` as JSON."""
        Path(path).write_text(json.dumps(self.metadata, indent=2), encoding="utf-8")

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds or replaces keys of the tracker's `metadata`. The stored files do not change.

        Raises `TypeError` for values that JSON cannot keep.
        """
        self._do(checkpoints.add_metadata, metadata)

    def remove_metadata(self, keys: Iterable[str]) -> None:
        """Removes keys from the tracker's `metadata`. Keys that it does not have are ignored."""
        self._do(checkpoints.remove_metadata, keys)

    def pin(self, note: str = "") -> None:
        """Protects the checkpoint from being deleted, by collection or by hand. `note` says why."""
        self._do(checkpoints.pin, note)

    def unpin(self) -> None:
        """Removes the pin. Does nothing if there is none."""
        self._do(checkpoints.unpin)

    def remove_files(self, globs: Sequence[str], *, force: bool = False) -> None:
        """Deletes the files and directories that `globs` match ("optimizer", "*.pt", "**/*.tmp").

        The other files stay readable, but no trial resumes from them. If no file is left, the checkpoint is deleted.
        Raises the errors of `delete`.
        """
        self._do(checkpoints.delete_files, globs, force=force)

    def delete(self, *, force: bool = False) -> None:
        """Deletes the files, if they are still there, and marks the checkpoint as deleted.

        Raises `CheckpointProtectedError` for a checkpoint that is pinned, that a trial began with, that a running
        attempt uses, or that is a version of a model; `force` ignores the first two. Raises a `StorageError` if the
        storage cannot be reached.
        """
        self._do(checkpoints.delete, force=force)

    get_pachyderm_commit = unavailable("Checkpoint.get_pachyderm_commit()", "Pachyderm's commits are not recorded")

    get_metrics = unavailable(
        "Checkpoint.get_metrics()", "`iter_metrics(group)` of the trial that used the checkpoint gives what it reported"
    )
