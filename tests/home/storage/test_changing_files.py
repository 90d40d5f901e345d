"""Files that are written to while they are stored: stored as they are at the end, or not at all."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from saving import checkpoint_ids, store_alone

from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import CheckpointNotStoredError


@pytest.fixture(params=["disk", "memory"])
def any_file_system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yields a directory on the disk and one in memory, which report mapped writes late or never."""
    if request.param == "disk":
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    path.write_bytes(bytes(200_000))
    with path.open("r+b") as file, contextlib.closing(mmap.mmap(file.fileno(), 0)) as memory:
        memory[0] = 1
        yield memory


def test_a_mapped_file_that_is_written_all_the_while_fails_the_save(any_file_system: Path) -> None:
    """A save of a file that is being written through mapped memory fails."""
    storage = DirectoryStorage(any_file_system / "checkpoints")
    has_begun, is_over = threading.Event(), threading.Event()

    def write(memory: mmap.mmap) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            memory[8:16] = number.to_bytes(8)
            has_begun.set()
            time.sleep(0)

    with storage.stage("new") as staging, mapped(staging.path / "model.bin") as memory:
        writer = threading.Thread(target=write, args=[memory])
        writer.start()
        has_begun.wait()
        try:
            with pytest.raises(CheckpointNotStoredError, match=r"'model\.bin' changed"):
                store_alone(staging, {"steps_completed": 1})
        finally:
            is_over.set()
            writer.join()

    assert checkpoint_ids(storage) == []
    assert list((storage.root / ".staging").iterdir()) == []


def test_a_mapped_file_that_nobody_writes_to_is_stored(any_file_system: Path) -> None:
    """A mapped file that does not change is stored while it is open."""
    storage = DirectoryStorage(any_file_system / "checkpoints")

    with storage.stage("still") as staging, mapped(staging.path / "model.bin"):
        store_alone(staging, {"steps_completed": 1})

    storage.verify("still")


def test_a_write_in_the_same_tick_of_the_files_clock_is_noticed(tmp_path: Path) -> None:
    """A file that was written a moment before the save, and again while it goes on."""
    storage = DirectoryStorage(tmp_path)
    for number in range(20):
        with storage.stage(str(number), is_shared=True) as staging:
            (staging.path / "model.bin").write_bytes(b"a" * 1000)
            shard = staging.seal()
            (staging.path / "model.bin").write_bytes(b"b" * 1000)

            with pytest.raises(CheckpointNotStoredError, match=r"'model\.bin' changed"):
                staging.contribute(list(shard.files), staging.address)
