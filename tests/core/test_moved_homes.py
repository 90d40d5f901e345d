"""A home that is renamed or removed while a training runs in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Script
from saving import checkpoint_ids

from core_sdk._execution.steering import trials
from core_sdk._ground.records import CheckpointStored, Ended, MetadataSet, Report
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import ReportsDroppedError

# What a training writes, before and after something happens to its home.
SCRIPT = """
import os, shutil, sys, time
from pathlib import Path
from core_sdk import core, media
from core_sdk.errors import CheckpointNotStoredError

home = Path(os.environ["CORE_SDK_HOME"])

def write(context, step):
    context.train.report_training_metrics(step, {"loss": 1.0})
    context.train.report_metrics("seen", step, {"text": media.Text(f"step {step}")})
    context.train.set_metadata({"step": step})
    try:
        (context.train.get_tensorboard_path() / f"of-{step}").touch()
        with context.checkpoint.store_path({"steps_completed": step}) as (path, storage_id):
            (path / "file").write_text("x")
        with context.checkpoint.restore_path(storage_id) as path:
            assert (path / "file").read_text() == "x"
    except (CheckpointNotStoredError, FileNotFoundError) as error:
        print("refused:", error, flush=True)

with core.init() as context:
    write(context, 1)
    WHAT
    write(context, 2)
    time.sleep(1.5)
    write(context, 3)
    print("waits", flush=True)
    while not context.preempt.should_preempt() and not os.environ.get("ENDS"):
        time.sleep(0.05)
"""

RunScript = Callable[..., tuple[int, str, str]]
StartScript = Callable[..., Script]


def test_a_training_goes_on_in_a_home_that_was_renamed(home: Home, start_script: StartScript) -> None:
    """After the home is renamed, reports, media and checkpoints go to the new path, where a stop is seen."""
    moved = Home(home.root.with_name("moved"))
    script = start_script(SCRIPT.replace("WHAT", f"home.rename({str(moved.root)!r})"))
    script.read_until("waits")

    trials.pause(moved, 1, "a test")
    status, stdout, stderr = script.wait()

    records = list(read_records(moved.trial(1).journal_path(1)))
    stored = [record.storage_id for record in records if isinstance(record, CheckpointStored)]
    assert status == 0, stderr
    assert "refused" not in stdout
    assert [each.steps_completed for each in records if isinstance(each, Report) and each.group == "training"] == [
        1,
        2,
        3,
    ]
    assert sum(isinstance(each, MetadataSet) for each in records) == 3
    assert isinstance(records[-1], Ended)
    assert len(list(moved.trial(1).media_path.iterdir())) == 3
    assert len(list(moved.trial(1).tensorboard_path.glob("of-*"))) == 3
    assert checkpoint_ids(DirectoryStorage(moved.checkpoints)) == sorted(stored)
    assert len(stored) == 3
    assert f"records go to {moved.trial(1).journal_path(1)}" in stderr
    assert not home.root.exists()


@pytest.mark.parametrize("what", ["home", "home / 'runs' / '1'"])
def test_what_is_reported_after_a_removal_counts_as_dropped(home: Home, run_script: RunScript, what: str) -> None:
    """After a removal nothing is recreated, saves raise, and the end says how many records are lost and why."""
    status, stdout, stderr = run_script(SCRIPT.replace("WHAT", f"shutil.rmtree({what})"), ENDS="1")

    assert status == 1
    assert stdout.count("refused") == 2
    assert ReportsDroppedError.__name__ in stderr
    assert "records could not be written" in stderr
    assert "keep a home until its trainings have ended" in stderr
    assert "has everything" not in stderr
    assert not home.folder(1).path.exists()
    assert home.root.exists() == (what != "home")


def test_ranks_go_on_in_a_home_that_was_renamed(home: Home, start_script: StartScript) -> None:
    """Reports and sharded checkpoints of all ranks follow the home to its new path."""
    source = """
import os, sys
from pathlib import Path
from core_sdk import core

rank = int(sys.argv[1])
ranks = core.DistributedContext(rank=rank, size=2, local_rank=rank, local_size=2, cross_rank=0, cross_size=1)
home = Path(os.environ["CORE_SDK_HOME"])
with core.init(distributed=ranks) as context:
    if ranks.rank == 0:
        home.rename(home.with_name("moved"))
    ranks.broadcast(None)
    context.train.report_training_metrics(1, {"loss": 1.0})
    with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
        (path / f"file{ranks.rank}").write_text("x")
"""
    moved = Home(home.root.with_name("moved"))

    scripts = [start_script(source, str(rank)) for rank in range(2)]
    ended = [script.wait() for script in scripts]

    assert [status for status, _, _ in ended] == [0, 0], ended
    for rank in range(2):
        records = read_records(moved.trial(1).journal_path(1, rank))
        assert sum(isinstance(record, Report) for record in records) == 1
    (storage_id,) = checkpoint_ids(DirectoryStorage(moved.checkpoints))
    assert all((moved.checkpoints / storage_id / f"file{rank}").exists() for rank in range(2))
    assert not home.root.exists()


def test_an_agent_records_the_end_in_a_home_that_was_renamed(home: Home, tmp_path: Path) -> None:
    """The output, exit status and last line of `core-sdk run` are those of the training."""
    (tmp_path / "train.py").write_text(SCRIPT.replace("WHAT", "home.rename(home.with_name('moved'))"))
    moved = Home(home.root.with_name("moved"))

    run = subprocess.run(
        [Path(sys.executable).with_name("core-sdk"), "run", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        env=os.environ | {"ENDS": "1"},
        capture_output=True,
        text=True,
    )

    folder = moved.trial(1)
    exit_record = folder.read_exit(1)
    assert run.returncode == 0, run.stderr
    assert "trial 1 completed" in run.stderr
    assert exit_record is not None
    assert exit_record.code == 0
    assert "waits" in folder.log_path(1).read_text()
    assert not home.root.exists()
