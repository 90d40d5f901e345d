"""`kill -9` at random moments of work on a bucket: what is listed is whole, and a sweep finds everything else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from buckets.opening import bucket_at
from buckets.servers import BucketServer
from kills.bucket_writer import LIMITS, WriterProcess, open_bucket_storage
from kills.sharded_writer import TOLD, RankProcess
from promises import promise
from saving import checkpoint_ids

from core_sdk._home.storage.bucket._bucket import Bucket
from core_sdk._home.storage.bucket._storage import BucketStorage

MAX_LIFE_S = 0.3


def kill_writers(server: BucketServer, temp_dir: Path, num_kills: int) -> int:
    """Kills writers one after the other on the same bucket; returns how many left something behind."""
    url = server.make_bucket()
    bucket = bucket_at(url)
    generator = random.Random(num_kills)
    num_with_leftovers = 0
    for _ in range(num_kills):
        writer = WriterProcess(url, temp_dir, server.variables())
        newest = writer.wait_for_commit()
        time.sleep(generator.uniform(0, MAX_LIFE_S))
        newest = [newest, *writer.kill()][-1]
        num_with_leftovers += check_what_is_left(bucket, temp_dir, newest)
    bucket.close()
    return num_with_leftovers


def kill_ranks(server: BucketServer, folder: Path, num_kills: int) -> int:
    """One of two ranks that store sharded checkpoints in the same bucket; how many left something behind."""
    url, temp_dir = server.make_bucket(), folder / "staged"
    bucket = bucket_at(url)
    open_storage = partial(open_bucket_storage, url, temp_dir, server.variables())
    generator = random.Random(num_kills)
    num_with_leftovers = 0
    for index in range(num_kills):
        attempt = folder / str(index)
        attempt.mkdir()
        (attempt / "meeting").mkdir(mode=0o700)
        ranks = [RankProcess(attempt, rank, size=2, open_storage=open_storage) for rank in range(2)]
        victim = generator.randrange(2)
        first = ranks[victim].storage_ids.recv()
        time.sleep(generator.uniform(0, MAX_LIFE_S))
        ranks[victim].kill()
        (_, said), (status, told) = ranks[victim].wait(), ranks[1 - victim].wait()

        assert (status, f"rank {victim}" in told[-1]) == (TOLD, True), told
        newest = max([first, *said], told[:-1], key=len)[-1]
        num_with_leftovers += check_what_is_left(bucket, temp_dir, newest)
        storage = BucketStorage(bucket, temp_dir=temp_dir)
        assert {storage.manifest(storage_id).ranks for storage_id in checkpoint_ids(storage)} == {(0, 1)}
    bucket.close()
    return num_with_leftovers


def check_what_is_left(bucket: Bucket, temp_dir: Path, newest: str) -> bool:
    """Checks the bucket after a kill; returns whether there was something to sweep."""
    # Leases and tombstones of the dead go at once, where they would stay for an hour.
    storage = BucketStorage(bucket, temp_dir=temp_dir, limits=replace(LIMITS, lease_s=-1.0))
    for storage_id in checkpoint_ids(storage):
        storage.check(storage_id)
    was_clean = stray_objects(storage, bucket) == []

    storage.sweep()

    assert stray_objects(storage, bucket) == []
    assert bucket.abort_uploads("") == 0
    assert list(temp_dir.rglob("*.lock")) == []
    listed = checkpoint_ids(storage)
    for storage_id in listed:
        storage.verify(storage_id)
    assert newest in listed, "what was committed last is gone"
    return not was_clean


def stray_objects(storage: BucketStorage, bucket: Bucket) -> list[str]:
    """Returns the objects that belong to no listed checkpoint."""
    expected = {".leases/clock"}
    for storage_id in checkpoint_ids(storage):
        expected |= {f"{storage_id}/{name}" for name in [".manifest.json", *storage.manifest(storage_id).files]}
    return [item.name for item in bucket.list() if item.name not in expected]


@pytest.fixture
def start(
    start_server: Callable[[str], BucketServer], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], BucketServer]:
    """Starts a server which this process is told to use."""

    def started(name: str) -> BucketServer:
        server = start_server(name)
        for variable, value in server.variables().items():
            monkeypatch.setenv(variable, value)
        return server

    return started


@promise("bucket-checkpoint-whole")
@pytest.mark.parametrize("server_name", ["strict GCS", "moto", "Azurite"])
def test_no_kill_leaves_half_a_checkpoint_in_a_bucket(
    start: Callable[[str], BucketServer], tmp_path: Path, server_name: str
) -> None:
    """After four kills at each store, no checkpoint is incomplete, and the last acknowledged one is still there."""
    kill_writers(start(server_name), tmp_path, num_kills=4)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("server_name", "num_kills"),
    [("strict GCS", 250), ("SeaweedFS", 125), ("Azurite", 125)],
)
def test_five_hundred_kills_leave_no_half_a_checkpoint(
    start: Callable[[str], BucketServer], tmp_path: Path, server_name: str, num_kills: int
) -> None:
    """After hundreds of kills at several stores, no checkpoint is incomplete."""
    assert kill_writers(start(server_name), tmp_path, num_kills) > num_kills // 10, "the kills missed what matters"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("server_name", ["strict GCS", "Azurite"])
def test_no_kill_of_a_rank_leaves_half_a_checkpoint_in_a_bucket(
    start: Callable[[str], BucketServer], tmp_path: Path, server_name: str
) -> None:
    """When a rank is killed, the other one is told, and no incomplete checkpoint stays in the bucket."""
    assert kill_ranks(start(server_name), tmp_path, num_kills=20) > 2, "the kills missed what matters"
