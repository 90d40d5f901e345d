"""A home that is renamed or removed while a training runs in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Script
from promises import promise
from saving import checkpoint_ids

from core_sdk._ground.records import CheckpointStored, Report
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import ReportsDroppedError

# What a training writes, before and after something happens to its home.
SCRIPT = """
import os, shutil, sys, threading, warnings
from pathlib import Path
from core_sdk import core, media
from core_sdk.errors import CheckpointNotStoredError

home = Path(os.environ["CORE_SDK_HOME"])
is_noticed, show = threading.Event(), warnings.showwarning
warnings.showwarning = lambda *words: (show(*words), is_noticed.set())

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
    assert is_noticed.wait(60)
    write(context, 3)
"""

RunScript = Callable[..., tuple[int, str, str]]
StartScript = Callable[..., Script]

RENAMED = "home.rename(home.with_name('moved'))"


@promise("home-gone")
@pytest.mark.parametrize("what", ["shutil.rmtree(home)", "shutil.rmtree(home / 'runs' / '1')", RENAMED])
def test_what_is_reported_into_a_home_that_is_gone_counts_as_dropped(
    home: Home, run_script: RunScript, what: str
) -> None:
    """Nothing is recreated, saves raise, and the end says how many records are lost and why."""
    status, stdout, stderr = run_script(SCRIPT.replace("WHAT", what))

    assert status == 1
    assert stdout.count("refused") == 2
    assert ReportsDroppedError.__name__ in stderr
    assert "records could not be written" in stderr
    assert "was renamed or removed while the training ran" in stderr
    assert "keep a home in its place until its trainings have ended" in stderr
    assert "has everything" not in stderr
    assert not home.folder(1).path.exists()
    assert home.root.exists() == ("runs" in what)


def test_a_renamed_home_keeps_what_was_reported_before(home: Home, run_script: RunScript) -> None:
    """The records and the checkpoint from before the renaming are at the new path, and no checkpoint came later."""
    run_script(SCRIPT.replace("WHAT", RENAMED))

    moved = Home(home.root.with_name("moved"))
    records = list(read_records(moved.trial(1).journal_path(1)))
    stored = [record.storage_id for record in records if isinstance(record, CheckpointStored)]
    steps = [each.steps_completed for each in records if isinstance(each, Report) and each.group == "training"]
    assert steps[0] == 1
    assert 3 not in steps
    assert checkpoint_ids(DirectoryStorage(moved.checkpoints)) == stored
    assert len(stored) == 1


def test_a_rank_s_reports_into_a_renamed_home_count_as_dropped(home: Home, start_script: StartScript) -> None:
    """Every rank raises for its own journal, and a sharded save fails on all of them."""
    source = """
import os, sys, threading, warnings
from pathlib import Path
from core_sdk import core
from core_sdk.errors import CoreSDKError

is_noticed, show = threading.Event(), warnings.showwarning
warnings.showwarning = lambda *words: (show(*words), is_noticed.set())

rank = int(sys.argv[1])
ranks = core.DistributedContext(rank=rank, size=2, local_rank=rank, local_size=2, cross_rank=0, cross_size=1)
home = Path(os.environ["CORE_SDK_HOME"])
with core.init(distributed=ranks) as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    ranks.allgather(None)
    if ranks.rank == 0:
        home.rename(home.with_name("moved"))
    ranks.allgather(None)
    assert is_noticed.wait(60)
    context.train.report_training_metrics(2, {"loss": 1.0})
    try:
        with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
            (path / f"file{ranks.rank}").write_text("x")
    except CoreSDKError as error:
        print("refused", flush=True)
"""

    scripts = [start_script(source, str(rank)) for rank in range(2)]
    ended = [script.wait() for script in scripts]

    assert [(status, stdout) for status, stdout, _ in ended] == [(1, "refused\n")] * 2, ended
    assert all(ReportsDroppedError.__name__ in stderr for _, _, stderr in ended)
    assert not home.root.exists()


def test_an_agent_says_that_it_cannot_record_the_end_in_a_renamed_home(home: Home, tmp_path: Path) -> None:
    """`core-sdk run` ends with status 1, says what is not recorded, and makes nothing at the old path."""
    (tmp_path / "train.py").write_text(SCRIPT.replace("WHAT", RENAMED))

    run = subprocess.run(
        [Path(sys.executable).with_name("core-sdk"), "run", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert run.returncode == 1
    assert "the exit status 1 could not be recorded" in run.stderr
    assert not home.root.exists()
