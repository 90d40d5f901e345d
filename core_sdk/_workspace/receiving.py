"""Writes what a pusher sends into a workspace, which is a home. Each call may be made again, and by several at once.

What is not small is put together in `receiving/`, from where it is moved into its place once it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.files import explained, is_full, read_regular, write_atomically
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import (
    CheckpointCondemned,
    CheckpointDeleted,
    CheckpointPruned,
    ClusterInfo,
    Record,
    SearchRecord,
    decode_file,
    encode_file,
)
from core_sdk._home.checkpoints import RecordedCheckpoint
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.history import read_history
from core_sdk._home.journal import decode_line
from core_sdk._home.media import is_content_of
from core_sdk._home.spool.pieces import Arrived
from core_sdk._home.spool.receiver import OtherContentError, append
from core_sdk._home.storage import DirectoryStorage, check_file_name, check_storage_id
from core_sdk._workspace.files import (
    EVENTS,
    SEARCH,
    Kind,
    checkpoint_file,
    code_digest,
    experiment_file,
    is_renumbered,
    kind_of,
)
from core_sdk._workspace.numbering import allot
from core_sdk._workspace.wire import (
    PIECE_BYTES,
    Allotted,
    Announcement,
    Answer,
    CheckpointArrival,
    Extent,
    PieceAnswers,
    PieceHead,
)
from core_sdk.errors import CheckpointDamagedError, CoreSDKError, UnsafePathError


class ReceivedRecord(msgspec.Struct, kw_only=True):
    """`received.json` of a trial or of an experiment: what has arrived of the files that are replaced as a whole."""

    format: int = 1
    files: dict[str, Extent] = {}
    """The files as they were sent; here, some have another content."""


class RecordReceiver:
    """Receives the records of other homes for one home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def announce(self, told: Announcement) -> list[Allotted]:
        """Returns the number of each announced trial, and what has arrived of it. Raises `OSError`."""
        return [self._with_arrived(allotted, folder) for allotted, folder in allot(self._home, told)]

    def receive(self, pieces: Iterable[tuple[PieceHead, bytes]]) -> PieceAnswers:
        """Writes pieces durably, until the disk takes no more."""
        answers: list[Answer] = []
        arrived = _ArrivedFiles()
        try:
            for head, content in pieces:
                answers.append(self._receive(head, content, arrived))
            arrived.write()
        except OSError as error:
            with contextlib.suppress(OSError):  # what is not noted arrives again
                arrived.write()
            if not is_full(error):
                raise
            return PieceAnswers(answers, explained(error).strerror or str(error))
        return PieceAnswers(answers)

    def checkpoint(self, trial: int, storage_id: str, *, is_complete: bool) -> CheckpointArrival:
        """Returns what has arrived of a checkpoint, of which pieces are taken from now on.

        With `is_complete`, stores it, since all of its files have been sent.
        """
        if (self._home.checkpoints / check_storage_id(storage_id)).exists():
            return CheckpointArrival(is_stored=True)
        if (named := _find(self._home.folder(trial), storage_id)) is None:
            return CheckpointArrival(problem=f"no record of trial {trial} names checkpoint {storage_id}")
        parts = self._parts(storage_id)
        parts.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_complete:
            return self._store(parts, storage_id, named)
        files = (path for path in parts.rglob("*") if path.is_file())
        return CheckpointArrival({path.relative_to(parts).as_posix(): path.stat().st_size for path in files})

    def _store(self, parts: Path, storage_id: str, named: RecordedCheckpoint) -> CheckpointArrival:
        """Verifies the files that have arrived, and stores them. Damaged ones are removed, and can be sent again."""
        try:
            for name in (each for each in named.resources if each.endswith("/")):
                (parts / check_file_name(name)).mkdir(mode=0o700, parents=True, exist_ok=True)
        except UnsafePathError as error:  # the record came from elsewhere, too
            return CheckpointArrival(problem=str(error))
        with file_lock(self._home.root / "received.lock"):
            try:
                with DirectoryStorage(self._home.checkpoints).receive(storage_id) as directory:
                    directory.rmdir()
                    parts.rename(directory)
            except (CheckpointDamagedError, FileNotFoundError) as error:
                return CheckpointArrival(is_stored=(self._home.checkpoints / storage_id).exists(), problem=str(error))
        return CheckpointArrival(is_stored=True)

    def _receive(self, head: PieceHead, content: bytes, arrived: _ArrivedFiles) -> Answer:
        folder, kind = self._home.folder(head.trial), kind_of(head.name)
        if kind is None:
            return Answer("refused", 0, f"{head.name!r} is no file of a trial that is sent")
        if not folder.exists():
            return Answer("deleted", 0, f"trial {head.trial} was deleted in the workspace")
        if (path := self._path(folder, head.name)) is None:
            return Answer("refused", 0, f"the experiment of trial {head.trial} is no search of another home")
        try:
            if kind == "growing":
                if path.parent != folder.path:
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                return Answer("taken", append(path, head.offset, content))
            if head.whole is not None:
                return self._receive_whole(folder, path, kind, head, head.whole, content, arrived)
            return Answer("refused", 0, f"{head.name} of trial {head.trial} came without its size")
        except OtherContentError:
            return Answer("differs", 0, f"{head.name} of trial {head.trial} has another content in the workspace")

    def _receive_whole(
        self,
        folder: TrialFolder,
        path: Path,
        kind: Kind,
        head: PieceHead,
        whole: Extent,
        content: bytes,
        arrived: _ArrivedFiles,
    ) -> Answer:
        """Takes a file that is put together first, unless it comes in one piece."""
        if kind == "checkpoint":
            storage_id, name = checkpoint_file(head.name)
            if not self._parts(storage_id).is_dir():
                return Answer("refused", 0, f"checkpoint {storage_id} was not asked for, or is there already")
            part = self._parts(storage_id) / name
            part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Answer("taken", append(part, head.offset, content))
        if whole.size_bytes > PIECE_BYTES:
            key = hashlib.sha256(f"{path.relative_to(self._home.root)} {whole}".encode()).hexdigest()
            parts = self._parts(f"file-{key}")
            parts.parent.mkdir(mode=0o700, exist_ok=True)
            size_bytes = append(parts, head.offset, content)
            if size_bytes < whole.size_bytes:
                return Answer("taken", size_bytes)
            content = read_regular(parts)
            parts.unlink()
        if len(content) != whole.size_bytes or zlib.crc32(content) != whole.checksum:
            return Answer("refused", 0, f"{head.name} of trial {head.trial} has arrived with another checksum")
        if problem := self._put(folder, path, kind, head.name, content):
            return Answer("refused", 0, problem)
        if kind not in ("media", "code"):
            arrived.add(path.parent if experiment_file(head.name) else folder.path, head.name, whole)
        return Answer("taken", whole.size_bytes)

    def _path(self, folder: TrialFolder, name: str) -> Path | None:
        """Returns the place of a file; None if the trial's experiment is not one that other homes send."""
        if (file := experiment_file(name)) is None:
            return folder.path / name
        with contextlib.suppress(CoreSDKError):
            experiment = self._home.experiment(folder.read_record().experiment_id)
            return experiment.path / file if experiment.read().is_received else None
        return None

    def _put(self, folder: TrialFolder, path: Path, kind: Kind, name: str, content: bytes) -> str:
        """Puts a complete file into its place. Returns the reason if it is not taken."""
        if kind == "changes":
            self._join_changes(folder, content)
            return ""
        if name == SEARCH:
            return self._put_search(folder, content)
        if kind == "media" and not is_content_of(path.name, content):
            return f"{name} has another content than its name says"
        if kind == "code":
            path = self._home.code_archive(code_digest(name))
            make_directory(path.parent, exist_ok=True)
            if path.exists():
                return ""
        if is_renumbered(name):
            content = _renumbered(content, folder)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, content)
        return ""

    def _put_search(self, folder: TrialFolder, content: bytes) -> str:
        """Puts the state of a search into the record of its experiment, which lists show."""
        try:
            search = decode_file(content, SearchRecord)
        except ValueError as error:
            return f"the state of a search cannot be read: {error}"
        with self._home.experiment(folder.read_record().experiment_id).edit() as record:
            record.search, record.is_submitted = search, True
        return ""

    def _join_changes(self, folder: TrialFolder, content: bytes) -> None:
        """Adds the changes that are not here. The deletion of a checkpoint there deletes none that is here."""
        try:
            known = set(read_regular(folder.changes_path).split(b"\n"))
        except FileNotFoundError:
            known = set()
        lines = (line for line in content.split(b"\n") if line and line not in known)
        if missing := b"".join(line + b"\n" for line in lines if not self._deletes_what_is_here(line)):
            folder.append_changes(missing)

    def _deletes_what_is_here(self, line: bytes) -> bool:
        record = _decoded(line)
        if not isinstance(record, CheckpointCondemned | CheckpointDeleted | CheckpointPruned):
            return False
        return (self._home.checkpoints / record.storage_id).exists()

    def _with_arrived(self, allotted: Allotted, folder: TrialFolder) -> Allotted:
        if allotted.is_deleted or allotted.is_of_copy:
            return allotted
        arrived = dict(_read_received(folder.path).files)
        for path in sorted(folder.path.rglob("*")):
            name = path.relative_to(folder.path).as_posix()
            kind = kind_of(name)
            if kind == "growing" and path.is_file():
                arrived[name] = Extent(*Arrived.at(path))
            elif kind == "media":
                arrived[name] = Extent(path.stat().st_size, 0)
        record = folder.read_record()
        codes = {None if record.code is None else record.code.sha256}
        experiment = self._home.experiment_folder(record.experiment_id)
        with contextlib.suppress(CoreSDKError):
            if experiment.read().is_received:
                arrived |= _read_received(experiment.path).files
                if experiment.events_path.is_file():
                    arrived[EVENTS] = Extent(*Arrived.at(experiment.events_path))
                codes.add(experiment.read_submission().code)
        for sha256 in codes - {None}:
            if (archive := self._home.code_archive(str(sha256))).exists():
                arrived[f"code/{sha256}.tar.gz"] = Extent(archive.stat().st_size, 0)
        return msgspec.structs.replace(allotted, arrived=arrived)

    def _parts(self, name: str) -> Path:
        return self._home.root / "receiving" / name


class _ArrivedFiles:
    """Notes which files have arrived as a whole, once for all of a request."""

    def __init__(self) -> None:
        self._added: dict[Path, dict[str, Extent]] = {}

    def add(self, directory: Path, name: str, extent: Extent) -> None:
        """Notes it for the trial or the experiment of which this is the folder."""
        self._added.setdefault(directory, {})[name] = extent

    def write(self) -> None:
        for directory, files in self._added.items():
            record = _read_received(directory)
            record.files |= files
            write_atomically(_received_path(directory), encode_file(record))
        self._added.clear()


def _received_path(directory: Path) -> Path:
    return directory / "received.json"


def _read_received(directory: Path) -> ReceivedRecord:
    try:
        return decode_file(read_regular(_received_path(directory)), ReceivedRecord)
    except (FileNotFoundError, ValueError):  # then all of it arrives again
        return ReceivedRecord(files={})


def _renumbered(content: bytes, folder: TrialFolder) -> bytes:
    """Returns a run info with the trial's ids here. A damaged one stays as it is."""
    try:
        info = decode_file(content, ClusterInfo)
    except ValueError:
        return content
    if info.trial_or_none is not None:
        info.trial.trial_id, info.trial.experiment_id = folder.trial_id, folder.read_record().experiment_id
        info.task_id = f"trial-{folder.trial_id}"
        info.allocation_id = f"{info.task_id}.{info.trial.attempt}"
    return encode_file(info)


def _find(folder: TrialFolder, storage_id: str) -> RecordedCheckpoint | None:
    with contextlib.suppress(CoreSDKError, OSError):
        found = (each for each in read_history(folder).checkpoints if each.record.storage_id == storage_id)
        return next(found, None)
    return None


def _decoded(line: bytes) -> Record | None:
    try:
        return decode_line(line)
    except ValueError:  # damaged: it comes along, and readers name it
        return None
