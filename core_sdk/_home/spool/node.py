"""Functions that run on a node, in the process that starts its workers, so that they survive a worker's death."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from core_sdk._ground.environment import Environment
from core_sdk._ground.files import fingerprint, fsync_directory, read_regular, reading, write_atomically
from core_sdk._ground.records import RetentionPolicy, SearcherMetric
from core_sdk._home.folders import Home, Ownership
from core_sdk._home.history import read_history
from core_sdk._home.spool.pieces import (
    PIECE_BYTES,
    Arrived,
    Piece,
    files_of,
    is_growing,
    is_journal,
    is_of_writer,
    is_whole,
)
from core_sdk._home.storage import check_storage_id

_POLL_S = 0.05


def sees_home(root: Path, identity: str) -> bool:
    """Returns whether the folder `root` of this node is the home of this identity."""
    own = Home(root).read_identity()
    return own is not None and Ownership(own).covers(identity)


def open_spool(identity: str, owner: str) -> Path:
    """Opens this node's spool for the home of this identity, and returns its path.

    `owner` is the identity of the home that finally gets the records.
    """
    spools = Environment.read().home / "spools"
    spools.mkdir(mode=0o700, parents=True, exist_ok=True)
    spool = Home.create(spools / identity)
    spool.stand_for(owner)
    return spool.root


def put(root: Path, piece: Piece) -> None:
    """Writes a piece into a file of the spool. The pieces of a file must come in order."""
    path = root / piece.name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if piece.is_whole:
        write_atomically(path, piece.content, is_durable=False)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.truncate(piece.offset)
        file.seek(piece.offset)
        file.write(piece.content)


def make_directory(root: Path, name: str) -> None:
    (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def exists(root: Path, name: str) -> bool:
    return (root / name).exists()


def rename(root: Path, source: str, target: str) -> None:
    """Gives a file or directory of the spool its final name. If that exists, `source` is removed instead."""
    if not (root / target).exists():
        (root / source).rename(root / target)
        fsync_directory((root / target).parent)
    elif (root / source).is_dir():
        shutil.rmtree(root / source)
    else:
        (root / source).unlink()


def read_news(
    root: Path, trial_id: int, attempt: int | None, known: Mapping[str, Arrived], wait_s: float
) -> list[Piece]:
    """Returns pieces of the trial's files that are not `known`. Journals come first.

    Blocks until there are some, but at most for `wait_s`. Raises `OSError` if what the home has of a file is of another
    one: the trial there is not the one of this spool.
    """
    deadline = time.monotonic() + wait_s
    while not (news := _news(root, trial_id, attempt, known)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return news


def read_file(root: Path, name: str, offset: int) -> bytes:
    """Returns a piece of a file, for example of a file of a checkpoint."""
    with reading(root / name) as file:
        file.seek(offset)
        return file.read(PIECE_BYTES)


def files_below(root: Path, directory: str) -> dict[str, int]:
    """Returns the sizes of the files below `directory`, by their names relative to it.

    The name of a directory ends with "/". The result is empty if `directory` does not exist.
    """
    top = root / directory
    found = {}
    for path in sorted(top.rglob("*")):
        name = path.relative_to(top).as_posix()
        found[f"{name}/" if path.is_dir() else name] = 0 if path.is_dir() else path.stat().st_size
    return found


def is_running(root: Path, trial_id: int, attempt: int) -> bool:
    """Returns whether rank 0 may still record something."""
    return Home(root).folder(trial_id).is_running(attempt)


def read_policy(root: Path, experiment_id: int) -> tuple[RetentionPolicy | None, SearcherMetric | None]:
    """Returns the policy for keeping checkpoints that an `init()` on this node has recorded, and its metric."""
    record = Home(root).experiment(experiment_id).read()
    return record.retention, record.searcher_metric


def remove_checkpoint(root: Path, storage_id: str) -> None:
    """Removes a checkpoint that was deleted in the home."""
    shutil.rmtree(Home(root).checkpoints / check_storage_id(storage_id), ignore_errors=True)


def trials_left(root: Path) -> list[int]:
    """Returns the trials of which something is left in the spool, and of which no attempt runs here."""
    home = Home(root)
    folders = map(home.folder, home.trial_ids())
    return [
        folder.trial_id
        for folder in folders
        if all(each.running_attempt() is None for each in (folder, *folder.of_other_nodes()))
    ]


def forget(root: Path, trial_id: int) -> None:
    """Removes a trial whose records are all in the home, and what no other trial here needs.

    Does nothing the second time.
    """
    home = Home(root)
    folder = home.folder(trial_id)
    if not folder.path.exists():
        return
    needed = {storage_id for each in home.trial_ids() if each != trial_id for storage_id in _begun_with(home, each)}
    stored = {checkpoint.record.storage_id for checkpoint in read_history(folder).checkpoints}
    for storage_id in (stored | set(_begun_with(home, trial_id))) - needed:
        shutil.rmtree(home.checkpoints / storage_id, ignore_errors=True)
    for unfinished in home.checkpoints.glob(f".arriving-{trial_id}-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    shutil.rmtree(folder.path, ignore_errors=True)
    if not home.trial_ids():
        shutil.rmtree(home.code, ignore_errors=True)


def _begun_with(home: Home, trial_id: int) -> Iterator[str]:
    """Yields the checkpoints with which attempts of the trial have begun."""
    folder = home.folder(trial_id)
    with contextlib.suppress(FileNotFoundError):  # it is being forgotten
        for attempt in folder.attempts():
            info = folder.read_run_info(attempt)
            if info is not None and info.latest_checkpoint is not None:
                yield info.latest_checkpoint


def _news(root: Path, trial_id: int, attempt: int | None, known: Mapping[str, Arrived]) -> list[Piece]:
    names = files_of(root, trial_id)
    # The journals are read last and returned first, since the other files depend on their records.
    others = [piece for name in names if not is_journal(name) for piece in _piece(root, name, trial_id, attempt, known)]
    journals: list[Piece] = []
    problem: OSError | None = None
    for name in filter(is_journal, names):
        try:
            journals += _piece(root, name, trial_id, attempt, known)
        except OSError as error:
            if not is_of_writer(name):
                raise
            problem = error  # a writer in the home has the same name: that keeps nothing else here
    if problem is not None and not journals + others:
        raise problem
    return journals + others


def _piece(root: Path, name: str, trial_id: int, attempt: int | None, known: Mapping[str, Arrived]) -> Iterator[Piece]:
    path, arrived = root / name, known.get(name, Arrived())
    if is_whole(name, trial_id, attempt):
        content = read_regular(path)
        if name not in known or Arrived.whole(content) != arrived:
            yield Piece(name, 0, content, is_whole=True)
    elif is_growing(name, trial_id, attempt) and path.stat().st_size > (offset := arrived.size_bytes):
        if fingerprint(path, offset) != arrived.checksum:
            raise OSError(
                errno.ESTALE, "the home has another file of this name, of another trial or of another writer", name
            )
        content = read_file(root, name, offset)
        if is_journal(name):
            # An incomplete line may be cut off again, if the disk is full.
            content = content[: content.rfind(b"\n") + 1] or (content if len(content) == PIECE_BYTES else b"")
        if content:
            yield Piece(name, offset, content)
