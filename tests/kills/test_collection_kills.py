"""`kill -9` at random moments of a collection: no wrong checkpoint goes, and nothing stays listed that is not whole."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from buckets.servers import BucketServer
from client.trainings import Training
from interfaces.cli.recorded import new_attempt, new_trial
from saving import checkpoint_ids, store_alone

from core_sdk._ground.records import CheckpointPinned, CheckpointStored
from core_sdk._home import Home
from core_sdk._home.deletion.collection import Collector, Request, collect
from core_sdk._home.index import Index
from core_sdk._home.storage import Storage, storage_from_url

LATEST = Request(policy={"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1})
NUM_TRIALS = 3
NUM_CHECKPOINTS = 4
TIMEOUT_S = 60.0


@pytest.fixture(params=["directory", "strict GCS"])
def url(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    start_server: Callable[[str], BucketServer],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if request.param == "directory":
        return (tmp_path / "checkpoints").as_uri()
    server = start_server(request.param)
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    return server.make_bucket()


def fill(home: Home, storage: Storage, steps: int) -> None:
    """Makes ended trials, each with checkpoints of which the newest is to be kept, and one pinned."""
    for _ in range(NUM_TRIALS):
        training = new_attempt(new_trial(home))
        ids = [f"{training.folder.trial_id}-{index}-{steps}" for index in range(NUM_CHECKPOINTS)]
        for index, storage_id in enumerate(ids):
            _store(storage, training, storage_id, index + 1)
        training.folder.append_change(CheckpointPinned(time=time.time(), storage_id=ids[0]))
        training.end()


def _store(storage: Storage, training: Training, storage_id: str, steps_completed: int) -> None:
    metadata = {"steps_completed": steps_completed}
    with storage.stage(storage_id) as staging:
        for name in ("model.bin", "optimizer.bin", "layers.bin"):
            (staging.path / name).write_bytes(random.Random(name).randbytes(500))
        manifest = store_alone(staging, metadata)
    training.append(
        CheckpointStored(
            time=time.time(),
            storage_id=storage_id,
            storage=storage.url,
            steps_completed=steps_completed,
            metadata=metadata,
            resources=manifest.resources,
        )
    )


def kept(home: Home) -> set[str]:
    with Collector(home, LATEST) as collector:
        return {verdict.storage_id for verdict in collector.plan().verdicts if verdict.is_kept}


def listed(home: Home) -> set[str]:
    with Index(home) as index:
        index.refresh()
        return {row.storage_id for row in index.checkpoints() if row.state == "COMPLETED"}


def start_collection(home: Home) -> BaseProcess:
    (home.root / "collecting").unlink(missing_ok=True)
    # Forked from a process that has imported everything already, so that the kill meets the collection.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["kills.test_collection_kills", "core_sdk._home.storage.bucket.gcs._bucket"])
    process = processes.Process(target=_collect, args=(home.root, dict(os.environ)))
    process.start()
    return process


def _collect(root: Path, variables: Mapping[str, str]) -> None:
    os.environ.update(variables)
    (root / "collecting").touch()
    collect(Home.open(root), LATEST)


def collect_and_kill(home: Home, storage: Storage, generator: random.Random, max_life_s: float) -> bool:
    """Kills a collection at a random moment; returns whether that was in the middle of it."""
    wanted, before = kept(home), listed(home)
    process = start_collection(home)
    _await(home.root / "collecting")
    time.sleep(generator.uniform(0, max_life_s))
    process.kill()
    process.join(TIMEOUT_S)

    left = listed(home)
    assert wanted <= left <= before, "a checkpoint that was to be kept is gone"
    for storage_id in left:
        storage.verify(storage_id)
    return wanted < set(checkpoint_ids(storage)) and left < before


def _await(path: Path) -> None:
    give_up = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < give_up, "the collection did not begin"
        time.sleep(0.001)


def _duration_s(home: Home) -> float:
    """Returns the duration of a collection that nobody kills, on this machine."""
    process = start_collection(home)
    _await(home.root / "collecting")
    began_at = time.monotonic()
    process.join(TIMEOUT_S)
    return time.monotonic() - began_at


def kill_collections(home: Home, url: str, num_kills: int) -> int:
    """Kills so many collections, each at a random time of its life. Returns how many were in the middle of it."""
    storage, generator = storage_from_url(url), random.Random(num_kills)
    fill(home, storage, num_kills)
    max_life_s = _duration_s(home)
    num_in_the_middle = 0
    for number in range(num_kills):
        if number % 4 == 0:
            fill(home, storage, number)
        num_in_the_middle += collect_and_kill(home, storage, generator, max_life_s)
    wanted = kept(home)
    collect(home, LATEST)

    assert listed(home) == wanted
    assert set(checkpoint_ids(storage)) == wanted, "what a kill had left was not deleted in the end"
    for storage_id in wanted:
        storage.verify(storage_id)
    storage.close()
    return num_in_the_middle


def test_no_killed_collection_deletes_a_wrong_checkpoint(home: Home, url: str) -> None:
    """A killed collection deletes no checkpoint that is to be kept, and the next one finishes its deletions."""
    kill_collections(home, url, num_kills=4)


@pytest.mark.timeout(3600)
def test_many_killed_collections_delete_no_wrong_checkpoint(home: Home, url: str) -> None:
    """Of two dozen killed collections, none deletes a checkpoint that is to be kept."""
    num_in_the_middle = kill_collections(home, url, num_kills=24)

    assert num_in_the_middle > 0, "the kills missed what matters"
