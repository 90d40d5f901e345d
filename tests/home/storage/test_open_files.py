"""Files that are still open when they are stored."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from buckets.memory import MemoryBucket
from saving import store_alone

from core_sdk._home.storage import DirectoryStorage, Storage
from core_sdk._home.storage.bucket import BucketStorage
from core_sdk.errors import CheckpointNotStoredError

OPENERS: dict[str, Callable[[Path], Storage]] = {
    "directory": lambda path: DirectoryStorage(path / "checkpoints"),
    "bucket": lambda path: BucketStorage(MemoryBucket(), temp_dir=path / "temp"),
}


@pytest.fixture(params=OPENERS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return OPENERS[request.param](tmp_path)


class OddFile(io.IOBase):
    """A file that raises when it is asked for its descriptor."""

    def fileno(self) -> int:
        raise AttributeError("fileno")


def test_what_python_has_not_flushed_is_stored(
    storage: Storage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Open files in the block are flushed and stored with a warning, and other files are not flushed."""
    odd = OddFile()
    with storage.stage("id") as staging, (tmp_path / "elsewhere").open("w") as elsewhere:
        text, content = (staging.path / "text").open("w"), (staging.path / "content").open("wb")
        text.write("not flushed")
        content.write(b"not flushed")
        elsewhere.write("mine")
        store_alone(staging, {"steps_completed": 1})

        assert (tmp_path / "elsewhere").read_text() == ""
    text.close()
    content.close()
    del odd

    assert storage.verify("id").resources["text"] == storage.verify("id").resources["content"] == 11
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert ["'content'" in line or "'text'" in line for line in told] == [True, True]


def test_a_file_that_is_open_and_empty_fails_the_save(storage: Storage) -> None:
    """A file that is open for writing and empty fails the save."""
    with storage.stage("id") as staging:
        descriptor = os.open(staging.path / "late.h5", os.O_WRONLY | os.O_CREAT)
        with pytest.raises(CheckpointNotStoredError, match=r"'late\.h5' is empty, and still open for writing"):
            store_alone(staging, {"steps_completed": 1})
        os.close(descriptor)


def test_a_file_that_is_only_read_may_stay_open(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is open for reading only causes no warning."""
    with storage.stage("id") as staging:
        (staging.path / "empty").touch()
        (staging.path / "read").write_bytes(b"x")
        with (staging.path / "read").open("rb"):
            store_alone(staging, {"steps_completed": 1})

    assert storage.verify("id").resources["read"] == 1
    assert caplog.records == []
