"""`kill -9` of any rank in a sharded save: the others are told, and what is visible is whole."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from kills.checkpoint_writer import check_what_is_left
from kills.sharded_writer import TOLD, RankProcess
from saving import checkpoint_ids

from core_sdk._home.storage import DirectoryStorage

MAX_LIFE_S = 0.1
KILLED = -9


def new_attempt(folder: Path) -> Path:
    """Returns a folder for the ranks of one attempt, all attempts on one storage."""
    attempt = folder / "attempt"
    shutil.rmtree(attempt, ignore_errors=True)
    (folder / "checkpoints").mkdir(exist_ok=True)
    (attempt / "meeting").mkdir(parents=True)
    (attempt / "meeting").chmod(0o700)
    (attempt / "checkpoints").symlink_to(folder / "checkpoints")
    return attempt


def left_places(storage: Path) -> list[Path]:
    return [path for path in (storage / ".staging").glob("*") if path.is_dir()]  # a rank may die before it is made


def check_union(storage: Path, size: int, was_committed: bool) -> None:
    """Every visible checkpoint has the files of all ranks."""
    for storage_id in check_what_is_left(storage, was_committed):
        manifest = DirectoryStorage(storage).manifest(storage_id)
        assert manifest.ranks == tuple(range(size))
        assert len(manifest.files) == 3 * size + 2


def kill_ranks(folder: Path, size: int, num_kills: int) -> int:
    """One after the other on the same storage, a random one at a random moment; how many left something behind."""
    generator = random.Random(size)
    storage = folder / "checkpoints"
    num_with_leftovers = 0
    for _ in range(num_kills):
        attempt = new_attempt(folder)
        ranks = [RankProcess(attempt, rank, size) for rank in range(size)]
        victim = generator.randrange(size)
        ranks[victim].storage_ids.recv()
        time.sleep(generator.uniform(0, MAX_LIFE_S))
        ranks[victim].kill()
        endings = [rank.wait() for rank in ranks]

        for rank in set(range(size)) - {victim}:
            status, said = endings[rank]
            assert (status, f"rank {victim}" in said[-1]) == (TOLD, True), said[-1]
        # The living have removed their own.
        assert len(left_places(storage)) <= 1
        num_with_leftovers += len(left_places(storage))
        check_union(storage, size, was_committed=True)
    return num_with_leftovers


@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_kill_of_a_rank_leaves_half_a_checkpoint(tmp_path: Path, size: int) -> None:
    """When a rank is killed, the others are told which one, and no incomplete checkpoint is left."""
    assert kill_ranks(tmp_path, size, num_kills=10) > 0, "the kills missed the moments that matter"


@pytest.mark.timeout(900)
def test_three_hundred_kills_leave_no_half_a_checkpoint(tmp_path: Path) -> None:
    """After three hundred kills of ranks, no checkpoint is incomplete."""
    assert kill_ranks(tmp_path, size=3, num_kills=300) > 30


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("first_step", [1, 2], ids=["in the background", "at once"])
def test_no_change_on_the_disk_is_the_wrong_one_for_a_rank_to_die_at(
    tmp_path: Path, victim: int, first_step: int
) -> None:
    """A kill before each file or directory that it makes, renames or removes, from the first to the last of a save."""
    storage = tmp_path / "checkpoints"
    num_kills = 0
    num_stored = 0

    while True:
        attempt = new_attempt(tmp_path)
        ranks = [
            RankProcess(
                attempt,
                rank,
                size=2,
                num_checkpoints=1,
                dies_at=num_kills + 1 if rank == victim else None,
                first_step=first_step,
            )
            for rank in range(2)
        ]
        endings = [rank.wait() for rank in ranks]
        if endings[victim][0] == 0:
            break
        assert endings[victim][0] == KILLED
        assert endings[1 - victim][0] in (0, TOLD)
        assert len(left_places(storage)) <= 1
        check_union(storage, size=2, was_committed=num_stored > 0)
        assert len(checkpoint_ids(DirectoryStorage(storage))) >= num_stored
        num_stored = len(checkpoint_ids(DirectoryStorage(storage)))
        num_kills += 1

    assert num_kills > 10
    assert num_stored >= 1, "it was never killed after the commit"
