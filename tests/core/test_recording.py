"""A save whose record the disk refuses: it raises, on every rank, and what was stored is withdrawn."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from buckets.servers import BucketServer
from core.rank_threads import Rank, Trial
from parts import needs, strace
from promises import promise
from saving import checkpoint_ids

from core_sdk import core
from core_sdk._home import Home, open_view
from core_sdk._home.deletion.collection import Request, collect
from core_sdk._home.history import read_history
from core_sdk._home.storage import DirectoryStorage, storage_from_url
from core_sdk.errors import CheckpointNotStoredError, NotEnoughSpaceError, RankFailedError, ReportsDroppedError

SAVE = """
import sys
from core_sdk import core
from core_sdk.errors import CheckpointNotStoredError

kind = sys.argv[1]
with core.init() as context:
    def save(steps_completed):
        metadata = {"steps_completed": steps_completed}
        with context.checkpoint.store_path(metadata, shard=kind == "sharded") as (path, storage_id):
            (path / "model.bin").write_bytes(b"weights")
        return storage_id

    try:
        save(1)
    except CheckpointNotStoredError as error:
        print("REFUSED", error)
    print(save(2))
"""
STORED = 3
"""The write to the journal that records the first checkpoint; before it come the attempt and the save's beginning."""


def run_with_fault(
    script: str, journal: Path, *arguments: str, inject: str, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    command = [*strace("-P", str(journal), "-e", f"inject={inject}"), sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)


def listed(home: Home) -> list[str]:
    return [checkpoint.record.storage_id for checkpoint in read_history(home.trial(1)).checkpoints]


@needs("strace")
@pytest.mark.parametrize("kind", ["alone", "sharded"])
@pytest.mark.parametrize("when", [STORED - 1, STORED], ids=["its beginning", "its end"])
def test_a_save_raises_when_the_disk_refuses_its_record(home: Home, kind: str, when: int) -> None:
    """A save whose record cannot be written is withdrawn; the next one is listed and survives collection."""
    finished = run_with_fault(SAVE, home.runs / "1" / "1.journal", kind, inject=f"write:error=EIO:when={when}")

    assert finished.returncode == 0, finished.stderr
    refused, kept = finished.stdout.splitlines()
    assert "1.journal" in refused
    assert "Input/output error" in refused
    assert listed(home) == [kept]
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == [kept]
    collect(home, Request(policy={"save_trial_best": 0, "save_trial_latest": 1}))
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == [kept]


def test_a_full_home_loses_no_acknowledged_save(small_disk: Path, tmp_path: Path) -> None:
    """On a full home, exactly the saves that returned without an error are listed and stored."""
    os.environ["CORE_SDK_HOME"] = str(small_disk / "home")
    storage = DirectoryStorage(tmp_path / "checkpoints")
    acknowledged = []
    num_refused = 0
    with core.init(checkpoint_storage=str(storage.root)) as context:
        (small_disk / "hog").write_bytes(bytes((1 << 20) - 150_000))  # the home keeps a reserve
        with contextlib.suppress(OSError), (small_disk / "rest").open("wb") as rest:
            while True:
                rest.write(bytes(100))
                rest.flush()
        for step in range(30):
            try:
                with context.checkpoint.store_path({"steps_completed": step, "note": "n" * 300}) as (path, storage_id):
                    (path / "model.bin").write_bytes(b"weights")
            except CheckpointNotStoredError:
                num_refused += 1
                if num_refused == 3:
                    (small_disk / "rest").unlink()
            else:
                acknowledged.append(storage_id)

    assert num_refused >= 3
    assert listed(Home(small_disk / "home")) == acknowledged
    assert checkpoint_ids(storage) == sorted(acknowledged)


@promise("full-disk-fails-saves")
def test_a_disk_full_of_checkpoints_and_records_loses_no_acknowledged_save(small_disk: Path) -> None:
    """On a disk full of checkpoints and records, exactly the acknowledged saves are listed and intact."""
    os.environ["CORE_SDK_HOME"] = str(small_disk / "home")
    home = Home(small_disk / "home")
    acknowledged = []
    with core.init() as context:
        for size_bytes in (50_000, 5_000, 500, 5):
            with contextlib.suppress(CheckpointNotStoredError, NotEnoughSpaceError, OSError):
                for step in range(100):
                    metadata = {"steps_completed": step, "note": "n" * 200}
                    with context.checkpoint.store_path(metadata) as (path, storage_id):
                        (path / "model.bin").write_bytes(bytes(size_bytes))
                    acknowledged.append(storage_id)
        context.checkpoint.delete(acknowledged.pop(0))

    assert len(acknowledged) > 10
    assert listed(home) == acknowledged
    storage = DirectoryStorage(home.checkpoints)
    assert checkpoint_ids(storage) == sorted(acknowledged)
    for storage_id in acknowledged:
        storage.verify(storage_id)


@pytest.mark.filterwarnings("ignore:records are being dropped")
def test_a_save_in_a_bucket_is_withdrawn_as_well(
    home: Home, start_server: Callable[[str], BucketServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save in a bucket is removed again when its record cannot be written."""
    server = start_server("strict GCS")
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    url = server.make_bucket()

    source = home.root.parent / "source"
    source.mkdir()
    (source / "model.bin").write_bytes(b"weights")

    def refuse_from_here_on(name: str) -> bool:
        """Refuses the journal's next writes: a selector is asked when the save's beginning has been recorded."""
        refuse_writes(home.runs / "1" / "1.journal")
        return True

    with pytest.raises(ReportsDroppedError), core.init(checkpoint_storage=url) as context:
        kept = context.checkpoint.upload(source, {"steps_completed": 1})
        with pytest.raises(CheckpointNotStoredError, match=r"1\.journal"):
            context.checkpoint.upload(source, {"steps_completed": 2}, selector=refuse_from_here_on)

    with contextlib.closing(storage_from_url(url)) as storage:
        assert checkpoint_ids(storage) == [kept]
    assert listed(home) == [kept]


@pytest.mark.filterwarnings("ignore:records are being dropped")
def test_a_save_in_the_background_raises_when_its_record_is_refused(home: Home) -> None:
    """A background save whose record is refused raises in wait(), and nothing is stored."""
    with pytest.raises(ReportsDroppedError), core.init() as context:
        refuse_writes(home.runs / "1" / "1.journal")
        with context.checkpoint.store_path({"steps_completed": 1}, wait=False) as (path, _):
            (path / "model.bin").write_bytes(b"weights")

        with pytest.raises(CheckpointNotStoredError, match=r"1\.journal"):
            context.checkpoint.wait()

    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == []


@pytest.mark.filterwarnings("ignore:records are being dropped")
def test_nothing_is_deleted_when_the_disk_refuses_the_record(home: Home) -> None:
    """A deletion that cannot be recorded deletes nothing."""
    with pytest.raises(ReportsDroppedError), core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            (path / "model.bin").write_bytes(b"weights")
        refuse_writes(home.runs / "1" / "1.journal")

        for globs in (None, ["**"]):
            with pytest.raises(OSError):
                context.checkpoint.delete(storage_id, globs)

    assert listed(home) == [storage_id]
    DirectoryStorage(home.checkpoints).verify(storage_id)


def test_a_record_that_the_chief_cannot_write_fails_every_rank(tmp_path: Path) -> None:
    """If the chief cannot write the record, the save fails on every rank and nothing is stored."""
    trial = Trial(tmp_path / "trial", num_ranks=2)

    def script(rank: Rank) -> None:
        if rank.number == 0:
            refuse_writes(rank.checkpoint._journal.path)
        with rank.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
            (path / f"{rank.number}.bin").write_bytes(b"weights")

    outcomes = trial.attempt(script)

    assert isinstance(outcomes.errors[0], CheckpointNotStoredError)
    assert isinstance(outcomes.errors[1], RankFailedError)
    assert checkpoint_ids(trial.storage) == []
    assert trial.left_over() == []


def refuse_writes(path: Path) -> None:
    """Makes every further write to this open file fail with EBADF."""
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if link.readlink() == path:
                os.dup2(os.open(path, os.O_RDONLY | os.O_CLOEXEC), int(link.name))


@needs("strace")
@pytest.mark.parametrize("outcome", ["error=EINTR:", ""], ids=["unwritten", "written"])
def test_an_interrupt_at_the_record_leaves_nothing_that_is_stored_and_not_listed(home: Home, outcome: str) -> None:
    """Ctrl-C while the record is written leaves no checkpoint that is stored but not listed."""
    script = SAVE.replace("except CheckpointNotStoredError", "except KeyboardInterrupt")

    finished = run_with_fault(
        script, home.runs / "1" / "1.journal", "alone", inject=f"write:{outcome}signal=SIGINT:when={STORED}"
    )

    assert finished.returncode == 0, finished.stderr
    refused, kept = finished.stdout.splitlines()
    assert refused.startswith("REFUSED")
    assert listed(home) == [kept]
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == [kept]


LOSES_THREE = """
import os, resource
from pathlib import Path
from core_sdk import core

_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    (journal,) = Path(os.environ["CORE_SDK_HOME"]).glob(f"runs/{context.info.trial.trial_id}/1.journal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size, most))
    for step in range(2, 5):
        context.train.report_training_metrics(step, {"loss": 1.0})
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    context.train.report_training_metrics(5, {"loss": 1.0})
"""


@promise("full-disk-drops-reports")
def test_a_trial_that_lost_records_is_in_one_state_however_it_was_started(
    home: Home, run_script: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """A trial that lost records is completed with a reason that counts them, and the exit status is 1."""
    status, _, stderr = run_script(LOSES_THREE)
    run = subprocess.run(
        [Path(sys.executable).with_name("core-sdk"), "run", "--", sys.executable, tmp_path / "train.py"],
        capture_output=True,
        text=True,
    )

    with open_view(home) as view:
        rows = view.trials()
    assert (status, run.returncode) == (1, 1)
    assert "ReportsDroppedError: 3 records" in stderr
    assert "trial 2 completed (3 records lost: this process may not write files above" in run.stderr
    assert [(row.state, row.num_dropped) for row in rows] == [("COMPLETED", 3)] * 2
    assert all(row.reason.startswith("3 records lost: this process may not write files") for row in rows)
