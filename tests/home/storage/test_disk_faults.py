"""Full disks and disks that fail: the save fails, by name, and nothing of it is seen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from parts import needs, strace
from promises import promise
from saving import checkpoint_ids, store_alone, upload

from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import NotEnoughSpaceError

DISK_BYTES = 1 << 20

SAVE = """
import sys
from pathlib import Path
from core_sdk.errors import CheckpointNotStoredError
from core_sdk._home.storage import DirectoryStorage, unite

storage = DirectoryStorage(Path(sys.argv[1]))
try:
    with storage.stage("new") as staging:
        for index in range(3):
            (staging.path / f"{index}.bin").write_bytes(bytes(10_000))
        shard = staging.seal()
        staging.contribute(list(shard.files), staging.address)
        staging.commit(unite([shard]), {"steps_completed": 2})
except CheckpointNotStoredError as error:
    print(error)
    sys.exit(3)
"""


def content(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def store(storage: DirectoryStorage, storage_id: str, num_bytes: int) -> None:
    with storage.stage(storage_id) as staging:
        (staging.path / "model.bin").write_bytes(bytes(num_bytes))
        store_alone(staging, {"steps_completed": 1})


def test_an_upload_that_does_not_fit_is_refused_before_it_begins(small_disk: Path, tmp_path: Path) -> None:
    """An upload that does not fit is refused with the sizes, and earlier checkpoints stay valid."""
    storage = DirectoryStorage(small_disk)
    store(storage, "good", 300_000)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model.bin").write_bytes(bytes(800_000))

    with pytest.raises(NotEnoughSpaceError, match="800,000") as raised:
        upload(storage, "big", tmp_path / "source", {"steps_completed": 2})

    assert raised.value.needed_bytes == 800_000
    assert 0 < raised.value.free_bytes < DISK_BYTES - 300_000
    assert checkpoint_ids(storage) == ["good"]
    storage.verify("good")


def test_a_disk_that_fills_in_the_block_leaves_nothing(small_disk: Path) -> None:
    """A disk that fills in the block raises the script's error and leaves no files."""
    storage = DirectoryStorage(small_disk)
    store(storage, "good", 300_000)

    with pytest.raises(OSError, match="No space left"):
        store(storage, "big", 2 * DISK_BYTES)
    assert content(small_disk) == [".staging", "good", "good/.manifest.json", "good/metadata.json", "good/model.bin"]
    store(storage, "next", 300_000)

    storage.verify("good")
    storage.verify("next")


def test_a_disk_that_fills_in_the_commit_leaves_nothing(small_disk: Path) -> None:
    """A disk that fills during the commit leaves no files."""
    storage = DirectoryStorage(small_disk)
    store(storage, "good", 300_000)

    with pytest.raises(NotEnoughSpaceError, match="0 bytes free") as raised, storage.stage("big") as staging:
        free_bytes = shutil.disk_usage(small_disk).free
        (staging.path / "model.bin").write_bytes(bytes(free_bytes))
        store_alone(staging, {"steps_completed": 2})

    assert raised.value.needed_bytes >= free_bytes
    assert checkpoint_ids(storage) == ["good"]
    assert list((small_disk / ".staging").iterdir()) == []
    storage.verify("good")


def test_a_download_that_does_not_fit_is_refused_before_it_begins(small_disk: Path, tmp_path: Path) -> None:
    """A download that does not fit is refused before any file is copied."""
    storage = DirectoryStorage(tmp_path / "checkpoints")
    store(storage, "big", 2 * DISK_BYTES)

    with pytest.raises(NotEnoughSpaceError):
        storage.download("big", small_disk / "copy")

    assert content(small_disk) == ["copy"]


def save_with_failing_fsync(root: Path, *strace_options: str) -> subprocess.CompletedProcess[str]:
    command = strace("-e", "trace=fsync", *strace_options)
    return subprocess.run([*command, sys.executable, "-c", SAVE, str(root)], capture_output=True, text=True)


@promise("checkpoint-whole")
@needs("strace")
@pytest.mark.parametrize("when", [1, 2])
def test_a_failed_fsync_fails_the_save(tmp_path: Path, when: int) -> None:
    """Each thread's n-th fsync returns EIO; six files and directories are flushed by four threads."""
    storage = DirectoryStorage(tmp_path)
    store(storage, "good", 1000)

    finished = save_with_failing_fsync(tmp_path, "-e", f"inject=fsync:error=EIO:when={when}")

    assert finished.returncode == 3, finished.stderr
    assert "Input/output error" in finished.stdout
    assert checkpoint_ids(storage) == ["good"]
    assert list((tmp_path / ".staging").iterdir()) == []
    storage.verify("good")


@needs("strace")
def test_a_checkpoint_whose_renaming_may_be_lost_is_withdrawn(tmp_path: Path) -> None:
    """If the last fsync fails, the checkpoint is removed although it has its name already."""
    storage = DirectoryStorage(tmp_path)
    store(storage, "good", 1000)

    finished = save_with_failing_fsync(tmp_path, "-P", str(tmp_path), "-e", "inject=fsync:error=EIO")

    assert finished.returncode == 3, finished.stderr
    assert content(tmp_path) == [".staging", "good", "good/.manifest.json", "good/metadata.json", "good/model.bin"]


@needs("strace")
def test_the_faulty_save_succeeds_without_the_fault(tmp_path: Path) -> None:
    """The same save succeeds without an injected fault."""
    finished = save_with_failing_fsync(tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert checkpoint_ids(DirectoryStorage(tmp_path)) == ["new"]
