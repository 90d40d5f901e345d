"""A disk that is full, a limit on the size of files, a file system without locks: each is told as what it is."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interfaces.cli.commands import COMMAND
from interfaces.cli.recorded import new_trial
from parts import needs, strace
from promises import promise

from core_sdk import client, core
from core_sdk._ground.records import CheckpointCondemned, RetentionPolicy
from core_sdk._home import Home
from core_sdk._home.deletion.collection import Request, collect
from core_sdk.core import Context
from core_sdk.errors import NotEnoughSpaceError

NUM_FLOATS = 500_000  # 2 MB, twice the small disk
WRITERS: dict[str, Callable[[Path], object]] = {
    "Python": lambda path: path.write_bytes(bytes(4 * NUM_FLOATS)),
    "torch": lambda path: torch.save(torch.zeros(NUM_FLOATS), path),
    "NumPy": lambda path: np.save(path, np.zeros(NUM_FLOATS, np.float32)),
    "wrapped": lambda path: _wrapped(path),
}


def _wrapped(path: Path) -> None:
    try:
        path.write_bytes(bytes(4 * NUM_FLOATS))
    except OSError as error:
        raise ValueError("the model could not be exported") from error


def fill(disk: Path) -> None:
    """Writes until not even a byte fits."""
    with contextlib.suppress(OSError), (disk / "hog").open("ab", buffering=0) as hog:
        while True:
            hog.write(bytes(100))


@promise("full-disk-fails-saves")
@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_disk_that_fills_in_the_block_is_named_with_its_figures(small_disk: Path, writer: str, wait: bool) -> None:
    """The error names the free and the needed bytes, whatever error the writing library raised."""
    os.environ["CORE_SDK_HOME"] = str(small_disk / "home")
    with core.init() as context:
        words = refusal_of(context, WRITERS[writer], wait)
        stored = large(context, 1)

    directory = re.escape(str(small_disk / "home" / "checkpoints"))
    assert re.match(rf"{directory} has [0-9,]+ bytes free and the checkpoint needs [1-9][0-9,]+", words)
    assert client.get_checkpoint(stored).state.value == "STATE_COMPLETED"


def refusal_of(context: Context, write: Callable[[Path], object], wait: bool) -> str:
    """Returns the error of a save that fails, without keeping the exception, which could hold the file open."""
    write_later = None if wait else lambda path: write(path / "model")
    try:
        with context.checkpoint.store_path({"steps_completed": 1}, wait=wait, write_later=write_later) as (path, _):
            if wait:
                write(path / "model")
        context.checkpoint.wait()
    except NotEnoughSpaceError as error:
        assert error.free_bytes < error.needed_bytes
        assert error.__cause__ is not None
        return str(error)
    raise AssertionError("it fits")


def test_an_error_of_the_script_stays_its_own(home: Home) -> None:
    """With free space on the disk, an error of the script is raised unchanged."""
    with core.init() as context:
        with pytest.raises(RuntimeError, match="mine"), context.checkpoint.store_path({"steps_completed": 1}):
            raise RuntimeError("mine")
        with pytest.raises(FileNotFoundError), context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            (path / "missing" / "x").write_bytes(b"")


DELETIONS: dict[str, Callable[[Context, str], Any]] = {
    "the script": lambda context, storage_id: context.checkpoint.delete(storage_id),
    "a release": lambda context, storage_id: context.checkpoint.release(storage_id),
    "by hand": lambda context, storage_id: client.get_checkpoint(storage_id).delete(),
    "its files": lambda context, storage_id: client.get_checkpoint(storage_id).remove_files(["*.bin"]),
    "the policy": lambda context, storage_id: _collect(),
    "its trial": lambda context, storage_id: client.get_trial(1).delete(),
    "its experiment": lambda context, storage_id: client.get_experiment(1).delete(),
}


def _collect() -> None:
    home = Home(Path(os.environ["CORE_SDK_HOME"]))
    request = Request(policy={"save_trial_best": 0, "save_trial_latest": 1})
    assert collect(home, request).problems == ()


@promise("full-disk-freed")
@pytest.mark.parametrize("way", DELETIONS)
def test_a_full_disk_can_be_freed(small_disk: Path, way: str) -> None:
    """Every way of deleting checkpoints works on a full disk and restores the reserve for records."""
    os.environ["CORE_SDK_HOME"] = str(small_disk / "home")
    home = Home(small_disk / "home")
    with core.init() as context:
        first = large(context, 1)
        large(context, 2)
        if way in ("the policy", "its trial", "its experiment"):
            context.close()
        fill(small_disk)

        DELETIONS[way](context, first)

        (small_disk / "hog").unlink()
    assert not (home.checkpoints / first / "large.bin").exists()
    assert (home.root / "reserve").stat().st_size == 64 << 10


def large(context: Context, steps: int) -> str:
    """Stores a checkpoint of 200 kB."""
    with context.checkpoint.store_path({"steps_completed": steps}) as (path, storage_id):
        (path / "large.bin").write_bytes(bytes(200_000))
        (path / "small").write_bytes(b"small")
    return storage_id


def test_a_deletion_that_was_killed_is_finished_on_a_full_disk(small_disk: Path) -> None:
    """A deletion that was killed after its first record is finished without the reserve or free space."""
    os.environ["CORE_SDK_HOME"] = str(small_disk / "home")
    home = Home(small_disk / "home")
    with core.init() as context:
        first = large(context, 1)
        large(context, 2)
    with home.experiment(1).edit() as record:
        record.retention = RetentionPolicy(save_trial_best=0)
    home.trial(1).append_change(CheckpointCondemned(time=0.0, storage_id=first))
    (home.root / "reserve").unlink()
    fill(small_disk)

    _collect()

    (small_disk / "hog").unlink()
    assert not (home.checkpoints / first).exists()
    assert client.get_checkpoint(first).state.value == "STATE_DELETED"


LIMITED = """
    import resource
    from pathlib import Path

    import numpy as np
    import torch
    from core_sdk import core
    from core_sdk.errors import CheckpointNotStoredError, ReportsDroppedError

    WRITERS = [
        lambda path: path.write_bytes(bytes(100_000)),
        lambda path: torch.save(torch.zeros(100_000), path),
        lambda path: np.save(path, np.zeros(100_000)),
    ]
    try:
        with core.init() as context:
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
            for write in WRITERS:
                try:
                    with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
                        write(path / "model")
                except CheckpointNotStoredError as error:
                    print(error)
            for step in range(500):
                context.train.report_training_metrics(step, {"loss": 1.0})
    except ReportsDroppedError as error:
        print(error)
"""


def test_a_limit_on_the_size_of_files_is_not_told_as_a_full_disk(
    run_script: Callable[..., tuple[int, str, str]],
) -> None:
    """The error names the limit and its value, for a checkpoint and for the journal."""
    status, output, errors = run_script(LIMITED)

    assert status == 0, errors
    told = output.splitlines()
    assert len(told) == 4
    assert all("may not write files above 30,000 bytes: raise the limit (RLIMIT_FSIZE" in line for line in told)


@needs("strace")
@pytest.mark.parametrize(
    ("lock", "call", "command"),
    [
        ("1.alive", "fcntl", [sys.executable, "-c", "from core_sdk import core; core.init()"]),
        ("changes.lock", "flock", [*COMMAND, "trial", "rename", "1", "other"]),
    ],
)
def test_a_file_system_without_locks_is_named(home: Home, lock: str, call: str, command: list[str]) -> None:
    """An error names a file system without locks, for the lock of an attempt and of a trial's changes."""
    path = home.runs / "1" / lock
    if lock == "changes.lock":
        new_trial(home)

    ended = subprocess.run(
        [*strace("-P", str(path), "-e", f"inject={call}:error=ENOLCK"), *command], capture_output=True, text=True
    )

    assert ended.returncode == 1
    assert "its file system gives no locks (No locks available): mount it with locks" in ended.stderr
    assert str(home.root if call == "fcntl" else path) in ended.stderr
