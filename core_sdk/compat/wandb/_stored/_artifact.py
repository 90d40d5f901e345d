"""Artifacts: directories of files that are stored as versions of a model."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from core_sdk import client
from core_sdk._ground.records import EXTENSIONS, MANIFEST_NAME, Media
from core_sdk._home.storage import METADATA_NAME
from core_sdk.compat.wandb._missing import missing
from core_sdk.compat.wandb._values import Table
from core_sdk.compat.wandb.errors import UsageError
from core_sdk.core import Context
from core_sdk.errors import ModelNotFoundError, NotRecordedError


class Artifact:
    """Files under a name, a type and metadata.

    `log_artifact()` copies the files as they are then, and returns when they are stored.
    """

    def __init__(
        self,
        name: str,
        type: str,
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **unused: Any,
    ) -> None:
        self.name = name
        self.type = type
        self.description = description
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.aliases: list[str] = []
        self.version: str | None = None
        self._files: dict[str, Path] = {}
        self._contents: dict[str, bytes] = {}
        self._checkpoint: client.Checkpoint | None = None

    @property
    def is_stored(self) -> bool:
        """Whether `log_artifact()` or `use_artifact()` has returned it."""
        return self._checkpoint is not None

    def add_file(self, local_path: str | Path, name: str | None = None, **unused: Any) -> None:
        """Adds a file. Raises `ValueError` if there is none."""
        path = Path(local_path)
        if not path.is_file():
            raise ValueError(f"the artifact {self.name!r} cannot have {str(path)!r}, which is no file")
        self._files[name or path.name] = path

    def add_dir(self, local_path: str | Path, name: str | None = None, **unused: Any) -> None:
        """Adds all files below a directory. Raises `ValueError` if there is none."""
        root = Path(local_path)
        if not root.is_dir():
            raise ValueError(f"the artifact {self.name!r} cannot have {str(root)!r}, which is no directory")
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self._files[str(Path(name or "") / path.relative_to(root))] = path

    @contextlib.contextmanager
    def new_file(self, name: str, mode: str = "w", encoding: str | None = None) -> Iterator[IO[Any]]:
        """Opens a file that becomes a part of the artifact."""
        with tempfile.TemporaryDirectory(prefix="core-sdk-artifact-") as directory:
            path = Path(directory) / "file"
            with path.open(mode, encoding=encoding) as file:
                yield file
            self._contents[name] = path.read_bytes()

    def add(self, obj: Any, name: str) -> None:
        """Adds a medium or a table as a file."""
        value = obj.as_medium() if isinstance(obj, Table) else obj
        if not isinstance(value, Media):
            raise TypeError(f"an artifact takes files, media and tables, not a {type(obj).__name__}")
        self._contents[f"{name}.{EXTENSIONS.get(value.file.media_type, 'bin')}"] = value.content

    def add_reference(self, uri: str, *args: object, **kwargs: object) -> None:
        """Raises `UsageError`: an artifact has files alone."""
        raise UsageError(f"{missing('wandb.Artifact.add_reference')}: note {uri!r} in the artifact's metadata")

    def wait(self, timeout: float | None = None) -> Artifact:
        """Returns the artifact, which is stored when `log_artifact()` returns."""
        return self

    def download(self, root: str | Path | None = None, **unused: Any) -> str:
        """Returns a directory with a copy of the files: `root`, or `artifacts/NAME:VERSION`."""
        directory = Path(root or Path("artifacts") / f"{self.name}:{self.version}")
        if not directory.exists():
            self._stored().download(directory)
            for name in (METADATA_NAME, MANIFEST_NAME):
                (directory / name).unlink(missing_ok=True)
        return str(directory)

    def file(self, root: str | Path | None = None) -> str:
        """Returns the path of a copy of the only file."""
        files = [path for path in Path(self.download(root)).rglob("*") if path.is_file()]
        if len(files) != 1:
            raise ValueError(f"the artifact {self.name!r} has {len(files)} files: call download()")
        return str(files[0])

    def fill(self, directory: Path) -> None:
        """Copies the files into a directory."""
        for name, path in self._files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, directory / name)
        for name, content in self._contents.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)

    def take(self, version: client.ModelVersion) -> Artifact:
        """Becomes the artifact that is stored as a version of a model. Returns itself."""
        self._checkpoint = version.checkpoint
        self.version = f"v{version.model_version - 1}"
        return self

    def _stored(self) -> client.Checkpoint:
        if self._checkpoint is None:
            raise UsageError(f"the artifact {self.name!r} is not stored: call log_artifact() first")
        return self._checkpoint

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"wandb.Artifact.{name}"), name=name, obj=self)


def artifact_of_path(artifact_or_path: Artifact | str | Path, name: str, type: str) -> Artifact:
    if isinstance(artifact_or_path, Artifact):
        return artifact_or_path
    path = Path(artifact_or_path)
    artifact = Artifact(name, type)
    (artifact.add_dir if path.is_dir() else artifact.add_file)(path)
    return artifact


class ArtifactStore:
    """Stores and finds artifacts, for a trial."""

    def __init__(self, context: Context | None) -> None:
        self._context = context

    def store(self, artifact: Artifact, aliases: Sequence[str], step: int) -> None:
        """Stores a checkpoint with the files, and makes it the newest version of the model of the artifact's name."""
        if self._context is None:
            return
        described = {
            "name": artifact.name,
            "type": artifact.type,
            "description": artifact.description,
            "aliases": list(aliases),
            "metadata": artifact.metadata,
        }
        metadata = {"steps_completed": step, "artifact": described}
        with self._context.checkpoint.store_path(metadata) as (directory, storage_id):
            artifact.fill(directory)
        try:
            model = client.get_model(artifact.name)
        except ModelNotFoundError:
            model = client.create_model(artifact.name, description=artifact.description or "")
        artifact.aliases = ["latest", *aliases]
        artifact.take(model.register_version(storage_id, name=aliases[0] if aliases else ""))

    def find(self, name: str) -> Artifact:
        """Returns an artifact by "name", "name:latest", "name:v3" or "name:alias".

        Raises `ModelNotFoundError`, or `NotRecordedError` for a version or an alias that it does not have.
        """
        name, _, wanted = name.rpartition("/")[2].partition(":")
        model = client.get_model(name)
        versions = model.list_versions()
        found = [each for each in versions if wanted in ("", "latest", f"v{each.model_version - 1}", *_aliases(each))]
        if not found:
            known = [f"v{each.model_version - 1}" for each in versions]
            raise NotRecordedError(f"the artifact {name!r} has no version {wanted!r}", "Its versions", known)
        described = _described(found[0])
        artifact = Artifact(name, str(described.get("type", "model")), None, described.get("metadata"))
        if self._context is not None:
            self._context.experimental.report_task_using_model_version(found[0])
        return artifact.take(found[0])


def _described(version: client.ModelVersion) -> Mapping[str, Any]:
    return dict(version.checkpoint.metadata.get("artifact") or {})


def _aliases(version: client.ModelVersion) -> Sequence[str]:
    return list(_described(version).get("aliases") or ())
