"""A process that stores and deletes checkpoints until it is killed, and the check of what it left.

    python checkpoint_writer.py STORAGE_DIRECTORY [NUM_CHECKPOINTS]

It prints each storage id once the checkpoint is committed, and keeps the two newest.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import uuid
from pathlib import Path

from core_sdk._ground.records import MANIFEST_NAME
from core_sdk._home.storage import DirectoryStorage, unite
from core_sdk.errors import CheckpointNotFoundError

_NUM_FILES = 4
_NUM_KEPT = 2


def write_checkpoints(root: Path, num_checkpoints: int | None) -> None:
    """Without a number it runs until the process is killed."""
    storage = DirectoryStorage(root)
    storage.sweep()
    generator = random.Random()
    committed = _checkpoint_ids(root)
    for steps_completed in itertools.count(1) if num_checkpoints is None else range(1, num_checkpoints + 1):
        storage_id = str(uuid.uuid4())
        with storage.stage(storage_id) as staging:
            (staging.path / "layers").mkdir()
            for index in range(_NUM_FILES):
                content = generator.randbytes(generator.randrange(200_000))
                (staging.path / "layers" / f"{index}.bin").write_bytes(content)
            shard = staging.seal()
            staging.contribute(list(shard.files), staging.address)
            staging.commit(unite([shard]), {"steps_completed": steps_completed})
        print(storage_id, flush=True)
        committed.append(storage_id)
        while len(committed) > _NUM_KEPT:
            with contextlib.suppress(CheckpointNotFoundError):  # another writer of the same storage was first
                storage.delete(committed.pop(0))


def _checkpoint_ids(root: Path) -> list[str]:
    return sorted(manifest.parent.name for manifest in root.glob(f"[!.]*/{MANIFEST_NAME}"))


def check_what_is_left(root: Path, was_committed: bool) -> list[str]:
    """Returns the visible checkpoints, after a check that each is whole, and one is left if any was committed."""
    storage = DirectoryStorage(root)
    visible = _checkpoint_ids(root)
    for storage_id in visible:
        storage.verify(storage_id)
    assert visible or not was_committed, "a checkpoint was committed, and none can be restored"
    storage.sweep()
    assert not list((root / ".staging").glob("*")), "what a dead process left was not swept"
    names = sorted(path.name for path in root.iterdir() if path.name != ".staging")
    assert names == visible, "something lies in the storage that is no checkpoint"
    return visible


if __name__ == "__main__":
    write_checkpoints(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
