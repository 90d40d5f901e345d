"""All that deletes asks for all that needs a checkpoint."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import pytest
from interfaces.cli.commands import Cli
from interfaces.cli.recorded import new_attempt, new_trial, store
from interfaces.server.visitor import Visitor
from processes import Script
from promises import promise
from saving import checkpoint_ids

from core_sdk import client, core
from core_sdk._ground.records import (
    CheckpointPinned,
    CheckpointUnpinned,
    CheckpointUsed,
    ClusterInfo,
    ExperimentRecord,
    RetentionPolicy,
    SearchRecord,
    SubmissionRecord,
)
from core_sdk._home import Home, TrialFolder
from core_sdk._home.deletion import OtherTrials, release_checkpoint
from core_sdk._home.deletion.collection import Request, collect
from core_sdk._home.folders import ExperimentFolder
from core_sdk._home.next_attempt import claimed_next_attempt
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import CheckpointProtectedError

NEEDED = "a"
NEEDS = [
    "pinned",
    "registered",
    "a trial began with it",
    "submitted experiment",
    "wanted trial",
    "resumed from",
    "being started",
    "used",
    "read by an attempt",
    "read by another home",
]

READER = """
    import sys

    from core_sdk import core

    with core.init(checkpoint_storage=sys.argv[1]) as context, context.checkpoint.restore_path("a") as path:
        print("reads", flush=True)
        open(sys.argv[2]).read()  # until the other end is closed
        assert (path / "weights.bin").read_bytes() == b"weights" * 100
"""


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial that has ended. The policy of its experiment keeps the latest checkpoint, not the needed one."""
    folder = new_trial(home)
    training = new_attempt(folder)
    for number, storage_id in enumerate((NEEDED, "b"), start=1):
        store(training, storage_id, 10 * number)
    training.end()
    with home.experiment(1).edit() as record:
        record.retention = RetentionPolicy(save_trial_best=0, save_trial_latest=1)
    return folder


def submitted(home: Home, *, warm_start: str | None = None, wanted: str | None = None) -> ExperimentFolder:
    """Allots a paused experiment whose trials have not begun."""
    folder = home.allot_experiment()
    search = SearchRecord(searcher="custom", state="PAUSED", beginnings=[wanted] if wanted else [])
    folder.write_submission(SubmissionRecord(cwd="/", warm_start=warm_start))
    folder.write(
        ExperimentRecord(
            experiment_id=folder.experiment_id, name="later", created=time.time(), is_submitted=True, search=search
        )
    )
    return folder


@contextlib.contextmanager
def needing(what: str, folder: TrialFolder, start_script: Callable[..., Script]) -> Iterator[None]:
    """Makes the checkpoint needed in this way during the block, and then no more."""
    home = Home(folder.home_root)
    match what:
        case "pinned":
            folder.append_change(CheckpointPinned(time=time.time(), storage_id=NEEDED))
            yield
            folder.append_change(CheckpointUnpinned(time=time.time(), storage_id=NEEDED))
        case "registered":
            model = client.create_model("digits")
            model.register_version(NEEDED)
            yield
            model.delete()
        case "a trial began with it":
            other = new_trial(home, experiment="other", continued_from=NEEDED)
            yield
            other.clear()
        case "submitted experiment":
            experiment = submitted(home, warm_start=NEEDED)
            yield
            experiment.delete()
        case "wanted trial":
            experiment = submitted(home, wanted=NEEDED)
            yield
            experiment.delete()
        case "resumed from":
            training = new_attempt(new_trial(home, experiment="other"), latest_checkpoint=NEEDED)
            yield
            training.die()
        case "being started":
            other = new_trial(home, experiment="other")
            with claimed_next_attempt(other, "start") as attempt:
                other.write_run_info(attempt, ClusterInfo(latest_checkpoint=NEEDED))
                yield
        case "used":
            training = new_attempt(new_trial(home, experiment="other"))
            training.append(CheckpointUsed(time=time.time(), storage_id=NEEDED))
            yield
            training.die()
        case "read by an attempt":
            with core.init(name="other") as context, context.checkpoint.restore_path(NEEDED) as path:
                yield
                assert (path / "weights.bin").read_bytes() == b"weights" * 100
        case "read by another home":
            fifo = home.root.with_name("fifo")
            os.mkfifo(fifo)
            reader = start_script(READER, str(home.checkpoints), str(fifo), CORE_SDK_HOME=str(home.root) + "-other")
            reader.read_until("reads")
            with fifo.open("w"):
                yield
            assert reader.wait()[0] == 0


def deletions(folder: TrialFolder, cli: Cli, visitor: Visitor) -> dict[str, Callable[[], object]]:
    """Returns every way of deleting the checkpoint by its name."""
    home, storage = Home(folder.home_root), DirectoryStorage(folder.home_root / "checkpoints")
    others = OtherTrials(home, folder.trial_id)
    return {
        "the policy": lambda: collect(home, Request(experiment_id=1)),
        "checkpoint gc": lambda: cli("checkpoint", "gc", "--experiment", "1", "--yes"),
        "checkpoint delete": lambda: cli("checkpoint", "delete", NEEDED, "--yes"),
        "checkpoint delete --glob": lambda: cli("checkpoint", "delete", NEEDED, "--glob", "*.bin", "--yes"),
        "trial delete": lambda: cli("trial", "delete", "1", "--yes"),
        "experiment delete": lambda: cli("experiment", "delete", "1", "--yes"),
        "client, checkpoint": lambda: client.get_checkpoint(NEEDED).delete(),
        "client, files": lambda: client.get_checkpoint(NEEDED).remove_files(["*.bin"]),
        "client, trial": lambda: client.get_trial(1).delete(),
        "client, experiment": lambda: client.get_experiment(1).delete(),
        "page, checkpoint": lambda: visitor.act(f"/checkpoints/{NEEDED}/actions/delete"),
        "page, trial": lambda: visitor.act("/trials/1/actions/delete"),
        "page, experiment": lambda: visitor.act("/experiments/1/actions/delete"),
        "release": lambda: release_checkpoint(folder, storage, NEEDED, others),
    }


@promise("needed-checkpoints-kept")
@pytest.mark.parametrize("what", NEEDS)
def test_what_is_needed_is_deleted_by_nobody(
    home: Home, folder: TrialFolder, cli: Cli, start_script: Callable[..., Script], what: str
) -> None:
    """A needed checkpoint is not deleted by any way of deletion, and is deleted when it is no longer needed."""
    storage, visitor = DirectoryStorage(home.checkpoints), Visitor(home)
    ways = deletions(folder, cli, visitor)

    deleted_by = []
    with needing(what, folder, start_script):
        for way, delete in ways.items():
            with contextlib.suppress(CheckpointProtectedError):
                delete()
            if checkpoint_ids(storage) != [NEEDED, "b"] or storage.verify(NEEDED).removed:
                deleted_by.append(way)
                break
    ways["the policy"]()

    visitor.close()
    assert deleted_by == []
    assert checkpoint_ids(storage) == ["b"]
