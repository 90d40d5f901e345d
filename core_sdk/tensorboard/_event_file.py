"""The event file of an attempt: its name, its head, and how it is written completely."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from core_sdk.descriptors import KeptDescriptor
from core_sdk.files import opened
from core_sdk.journal import read_journal
from core_sdk.records import AttemptStarted, Report
from core_sdk.tensorboard import _encoding
from core_sdk.tensorboard._media import Medium, media_of
from core_sdk.tensorboard._scalars import JournalScalars, Scalar

_CHUNK_BYTES = 1 << 20
_MAX_SCALARS = 10_000


def write_event_files(journal_paths: Iterable[Path], directory: Path) -> list[Path]:
    """Writes each attempt's complete event file, with its media, replaces an existing one, and returns the paths.

    An attempt without reports gets no file. An attempt whose `TensorboardMirror` is still writing is skipped.
    """
    paths = (_write_event_file(journal_path, directory) for journal_path in journal_paths)
    return [path for path in paths if path is not None]


def event_file_path(directory: Path, started: AttemptStarted) -> Path:
    """Returns a path that sorts in the order of the attempts, since TensorBoard reads files in the order of names."""
    host = re.sub(r"[^A-Za-z0-9.-]", "_", started.host)[:64]
    return directory / f"events.out.tfevents.{int(started.time):010}.{started.attempt:06}.{host}.{started.pid}"


class EventFile:
    """An event file that is written from its beginning. Until it is closed, a lock keeps it from being replaced."""

    def __init__(self, path: Path, started: AttemptStarted) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._file = KeptDescriptor(os.open(path, flags, 0o600))
        # Some network file systems have no locks. There, a complete file may replace one that is being written.
        with contextlib.suppress(OSError):
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write(_head(started))

    def append(self, scalars: Iterable[Scalar]) -> None:
        self._write(b"".join([_encoding.scalar(*scalar) for scalar in scalars]))

    def append_media(self, media: Iterable[Medium]) -> None:
        for medium in media:
            self._write(medium.encoded() or b"")

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file.checked(), data) :]


def _head(started: AttemptStarted) -> bytes:
    head = _encoding.file_version(started.time)
    if started.attempt > 1:
        # Reports of earlier attempts beyond the checkpoint that this one resumed from are superseded.
        step = 0 if started.latest_checkpoint is None else started.resumed_steps + 1
        head += _encoding.session_start(started.time, step)
    return head


def _write_event_file(journal_path: Path, directory: Path) -> Path | None:
    journal = JournalScalars(journal_path, chunk_bytes=_CHUNK_BYTES, verify=True)
    scalars = journal.read(_MAX_SCALARS)
    while scalars == []:
        scalars = journal.read(_MAX_SCALARS)
    media = _media(journal_path)
    first = next(media, None)
    if scalars is None and first is None:
        return None
    path = event_file_path(directory, journal.started)
    if _is_being_written(path):
        return None
    # TensorBoard takes any file whose name contains "tfevents".
    temporary = directory / f".{uuid.uuid4().hex}.tmp"
    try:
        with contextlib.closing(EventFile(temporary, journal.started)) as file:
            while scalars is not None:
                file.append(scalars)
                scalars = journal.read(_MAX_SCALARS)
            file.append_media(itertools.chain([first] if first else [], media))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _media(journal_path: Path) -> Iterator[Medium]:
    for chunk in read_journal(journal_path, chunk_bytes=_CHUNK_BYTES):
        for record in chunk.records:
            if isinstance(record, Report) and record.json_metrics is not None:
                yield from media_of(record, journal_path.parent)


def _is_being_written(path: Path) -> bool:
    try:
        with opened(path, os.O_RDWR) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no such file, or its file system has no locks
        return False
    return False
