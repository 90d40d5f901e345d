"""A process that stores, shrinks and deletes checkpoints in a bucket until it is killed."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import uuid
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from buckets.opening import bucket_at
from saving import checkpoint_ids, store_alone

from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._storage import BucketStorage

TIMEOUT_S = 60.0
LIMITS = Limits(num_threads=4, whole_bytes=64 << 10)

_ADAPTERS = [f"core_sdk._home.storage.bucket.{name}._bucket" for name in ("azure", "gcs", "s3")]


class WriterProcess:
    """Says each storage id once that checkpoint is committed; deletes the second to last, and shrinks the last."""

    def __init__(self, url: str, temp_dir: Path, variables: Mapping[str, str]) -> None:
        # Forked from a process that has imported everything already, so that hundreds can be killed in a minute.
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload(["kills.bucket_writer", *_ADAPTERS])
        self.storage_ids, sender = processes.Pipe(duplex=False)
        self._process = processes.Process(target=_write_checkpoints, args=(url, temp_dir, variables, sender))
        self._process.start()
        sender.close()

    def wait_for_commit(self) -> str:
        assert self.storage_ids.poll(TIMEOUT_S), "the writer committed nothing"
        storage_id: str = self.storage_ids.recv()
        return storage_id

    def kill(self) -> list[str]:
        """Kills the process, and returns what it has said since."""
        self._process.kill()
        self._process.join(TIMEOUT_S)
        said = []
        with contextlib.suppress(EOFError):
            while self.storage_ids.poll(0):
                said.append(self.storage_ids.recv())
        self.storage_ids.close()
        self._process.close()
        return said


def open_bucket_storage(url: str, temp_dir: Path, variables: Mapping[str, str]) -> BucketStorage:
    """Opens it in a process of its own, whose environment it changes."""
    os.environ.update(variables)
    return BucketStorage(bucket_at(url), temp_dir=temp_dir, limits=LIMITS)


def _write_checkpoints(url: str, temp_dir: Path, variables: Mapping[str, str], sender: Connection[Any, Any]) -> None:
    storage = open_bucket_storage(url, temp_dir, variables)
    committed = checkpoint_ids(storage)
    for steps_completed in itertools.count(1):
        committed.append(_store(storage, steps_completed))
        sender.send(committed[-1])
        storage.delete(committed[-2], ["shared.bin", "layers/1.bin"]) if len(committed) > 1 else None
        while len(committed) > 2:
            storage.delete(committed.pop(0))


def _store(storage: BucketStorage, steps_completed: int) -> str:
    generator = random.Random()
    storage_id = str(uuid.uuid4())
    with storage.stage(storage_id) as staging:
        (staging.path / "layers").mkdir()
        for index in range(3):
            content = generator.randbytes(generator.randrange(20_000))
            (staging.path / "layers" / f"{index}.bin").write_bytes(content)
        (staging.path / "large.bin").write_bytes(generator.randbytes(150_000))
        (staging.path / "shared.bin").write_bytes(bytes(50_000))
        store_alone(staging, {"steps_completed": steps_completed})
    return storage_id
