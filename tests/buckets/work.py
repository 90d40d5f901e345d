"""What is done to checkpoints while faults happen, and what must hold afterwards."""

from __future__ import annotations

import random
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from buckets.stand import Stand
from saving import checkpoint_ids, store_alone

from core_sdk._home.storage import Storage
from core_sdk.errors import CoreSDKError

Content = Mapping[str, bytes]
"""Files by name."""

PARTIAL_GLOBS = ["optimizer", "b.bin"]
_METADATA = {"steps_completed": 7}
_LARGE_BYTES = 200_000


@dataclass(frozen=True)
class Work:
    """One call that changes or reads checkpoints."""

    name: str
    act: Callable[[Storage, Scene], None]
    begins_with: bool
    """Whether the checkpoint is there before."""
    may_be_lost: bool
    """Whether it may be gone where the call fails."""
    after: Callable[[Content], Content | None]
    """What the checkpoint holds once the call has succeeded; None if it is gone."""


@dataclass(frozen=True)
class Scene:
    """A checkpoint and a directory for one call."""

    storage_id: str
    content: Content
    directory: Path
    earlier_id: str | None = None
    """A checkpoint with the same content."""

    @classmethod
    def new(cls, temp_dir: Path, large_bytes: int = _LARGE_BYTES) -> Scene:
        """Makes one large file and three small ones in a directory, and an empty directory."""
        generator = random.Random(uuid.uuid4().int)
        sizes = {"large.bin": large_bytes, "a.bin": 10, "b.bin": 9000, "optimizer/c.bin": 20_000}
        content = {name: generator.randbytes(size) for name, size in sizes.items()}
        return cls(str(uuid.uuid4()), content, temp_dir / uuid.uuid4().hex)


def save(storage: Storage, scene: Scene) -> None:
    with storage.stage(scene.storage_id) as staging:
        for name, content in scene.content.items():
            (staging.path / name).parent.mkdir(exist_ok=True)
            (staging.path / name).write_bytes(content)
        (staging.path / "empty").mkdir()
        store_alone(staging, _METADATA)


def _restore(storage: Storage, scene: Scene) -> None:
    storage.download(scene.storage_id, scene.directory)
    check_directory(scene.directory, scene.content)


def _delete_some(storage: Storage, scene: Scene) -> None:
    storage.delete(scene.storage_id, PARTIAL_GLOBS)


def _delete(storage: Storage, scene: Scene) -> None:
    storage.delete(scene.storage_id)


def _verify(storage: Storage, scene: Scene) -> None:
    assert storage.verify(scene.storage_id).metadata == _METADATA


def without_some(content: Content) -> Content:
    return {name: file for name, file in content.items() if name in ("large.bin", "a.bin")}


SAVE = Work("save", save, begins_with=False, may_be_lost=True, after=dict)
RESTORE = Work("restore", _restore, begins_with=True, may_be_lost=False, after=dict)
VERIFY = Work("verify", _verify, begins_with=True, may_be_lost=False, after=dict)
DELETE_SOME = Work("partial delete", _delete_some, begins_with=True, may_be_lost=False, after=without_some)
DELETE = Work("delete", _delete, begins_with=True, may_be_lost=True, after=lambda content: None)
ALL: Sequence[Work] = (SAVE, RESTORE, VERIFY, DELETE_SOME, DELETE)


@dataclass(frozen=True)
class Outcome:
    error: CoreSDKError | None
    seconds: float
    num_requests: int


def run(stand: Stand, work: Work, scene: Scene, arm: Callable[[], None] = lambda: None) -> Outcome:
    """Prepares without faults, arms them, does the work, and disarms them again."""
    if work.begins_with:
        save(stand.direct, scene)
    stand.proxy.reset()
    arm()
    error: CoreSDKError | None = None
    began = time.monotonic()
    try:
        work.act(stand.faulty, scene)
    except CoreSDKError as raised:
        error = raised
    seconds = time.monotonic() - began
    num_requests = stand.proxy.requests
    stand.proxy.reset()
    return Outcome(error, seconds, num_requests)


def check(stand: Stand, work: Work, scene: Scene, outcome: Outcome) -> None:
    """Checks that what is listed is right, to the byte, and that a sweep finds all that failed saves left."""
    listed = checkpoint_ids(stand.direct)
    after = work.after(scene.content)
    if outcome.error is None:
        assert listed == ([] if after is None else [scene.storage_id])
        allowed = [after]
    else:
        assert listed in ([[scene.storage_id], []] if work.may_be_lost else [[scene.storage_id]]), outcome.error
        allowed = [after, scene.content]
    for storage_id in listed:
        check_checkpoint(stand.direct, storage_id, allowed, scene.directory.with_suffix(".check"))
    assert stand.remains() == []
    shutil.rmtree(scene.directory, ignore_errors=True)


def check_checkpoint(storage: Storage, storage_id: str, allowed: Sequence[Content | None], directory: Path) -> None:
    """Checks every byte, as the storage verifies it and as a restore gives it."""
    storage.verify(storage_id)
    storage.download(storage_id, directory)
    content = directory_content(directory)
    shutil.rmtree(directory)
    assert content in allowed


def check_directory(directory: Path, content: Content) -> None:
    assert directory_content(directory) == content


def directory_content(directory: Path) -> Content:
    """Returns the script's own files in the directory, with their content."""
    files = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in ("metadata.json", ".manifest.json")}
