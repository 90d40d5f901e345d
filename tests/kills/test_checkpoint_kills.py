"""`kill -9` at random moments: what is visible is whole, and one is always restorable."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from kills import checkpoint_writer
from kills.checkpoint_writer import check_what_is_left
from parts import needs, strace

from core_sdk._home.storage import DirectoryStorage

NUM_KILLS = 40
MAX_LIFE_S = 0.15


def start_writer(root: Path, num_checkpoints: int | None = None, prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
    arguments = [str(root)] if num_checkpoints is None else [str(root), str(num_checkpoints)]
    return subprocess.Popen(
        [*prefix, sys.executable, checkpoint_writer.__file__, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_after(writer: subprocess.Popen[str], life_s: float) -> None:
    """Lets it commit a checkpoint, and kills it at a moment that has nothing to do with what it does."""
    assert writer.stdout is not None
    assert writer.stdout.readline()
    time.sleep(life_s)
    writer.kill()
    writer.communicate()


def test_no_kill_leaves_half_a_checkpoint(tmp_path: Path) -> None:
    """After kills at random moments on the same storage, no checkpoint is incomplete."""
    generator = random.Random(9)
    num_with_leftovers = 0

    for _ in range(NUM_KILLS):
        kill_after(start_writer(tmp_path), generator.uniform(0, MAX_LIFE_S))
        num_with_leftovers += any((tmp_path / ".staging").iterdir())
        check_what_is_left(tmp_path, was_committed=True)

    assert num_with_leftovers > NUM_KILLS // 4, "the kills missed the moments that matter"


@needs("strace")
@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename", "unlink", "unlinkat", "rmdir", "openat"])
def test_no_system_call_is_the_wrong_one_to_die_in(tmp_path: Path, call: str) -> None:
    """A kill in each call of this kind on the storage, from the first to the last of two saves and a deletion."""
    start_writer(tmp_path, 1).communicate()
    num_kills = 0

    while (writer := start_writer(tmp_path, 2, prefix=killing_strace(tmp_path, call, num_kills + 1))).wait() != 0:
        writer.communicate()
        num_kills += 1
        check_what_is_left(tmp_path, was_committed=True)
    writer.communicate()

    assert num_kills >= 2
    check_what_is_left(tmp_path, was_committed=True)


def killing_strace(root: Path, call: str, when: int) -> list[str]:
    # Opening is done by the interpreter, too: only the calls on directories of the storage count there.
    where = ["-P", str(root), "-P", str(root / ".staging")] if call == "openat" else []
    return strace(*where, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={when}")


def test_leftovers_of_the_living_are_left_alone(tmp_path: Path) -> None:
    """A sweep while two writers work takes nothing from either; their next checkpoints are whole."""
    writers = [start_writer(tmp_path), start_writer(tmp_path)]
    storage = DirectoryStorage(tmp_path)
    num_swept = 0

    for writer in writers:
        assert writer.stdout is not None
        for _ in range(10):
            assert writer.stdout.readline()
            num_swept += len(storage.sweep())
    for writer in writers:
        assert writer.poll() is None
        kill_after(writer, life_s=0)

    assert num_swept == 0
    check_what_is_left(tmp_path, was_committed=True)
