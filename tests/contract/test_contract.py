"""docs/contract.md, sentence by sentence: the number in a test's name is the sentence's."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import pickle
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID

import msgspec
import psutil
import pytest
from buckets import faults
from buckets.opening import bucket_at
from buckets.proxy import DropConnection, Exchange, Proxy, start_proxy
from buckets.proxy import Request as WireRequest
from buckets.servers import BucketServer
from core.metadata_servers import GoogleStub
from core.rank_processes import Ranks
from execution.master.damage import flip, made_home, opened_master, replace
from execution.master.searches import await_end, events_of, submit_search, submit_text
from execution.workers.engines import UnwatchedRay
from home.journals import append, lines, started
from interfaces.cli.recorded import damage, new_attempt, new_trial
from interfaces.cli.recorded import store as store_recorded
from kills.process_trees import SCRIPT, TORCH, ProcessTree
from loop.exact_training import Training, loader_of
from masters import running_master
from parts import needs
from processes import Script, wait_for
from saving import checkpoint_ids, store_alone
from terminals import Person
from train.ray_training import RayTraining

from core_sdk import client, core, media, train
from core_sdk._execution.experiments._actions import AskToStop, Finish
from core_sdk._execution.experiments.calling import call, is_master_running
from core_sdk._execution.experiments.experiment import ExperimentStateMachine
from core_sdk._execution.experiments.protocol import Down, GetStatus, Want
from core_sdk._execution.experiments.reviving import announce_master, revive_master
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master._master import Master
from core_sdk._execution.steering import trials
from core_sdk._ground.alive import signed_by
from core_sdk._ground.records import (
    STOPPED_BY_SEARCHER,
    AttemptBegun,
    AttemptOver,
    CheckpointCondemned,
    CheckpointDeleted,
    CheckpointPinned,
    CheckpointStored,
    CheckpointUsed,
    Ended,
    ExperimentEnded,
    Report,
    SearchRecord,
    StopSent,
    SubmissionRecord,
    TrialNumbered,
    ValidationRead,
    metrics_from_json,
)
from core_sdk._home import Home, open_view
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.deletion.collection import Request, collect
from core_sdk._home.history import read_history
from core_sdk._home.index import Index
from core_sdk._home.journal import JournalWriter, read_journal, read_records
from core_sdk._home.moving.merging import merge
from core_sdk._home.moving.relocation import adopt
from core_sdk._home.next_attempt import mark_of_attempt
from core_sdk._home.registry import Registry
from core_sdk._home.storage import DirectoryStorage, storage_from_url
from core_sdk._machine.processes import is_any_marked
from core_sdk._machine.slots import Machine, SlotDirectory, Ticket
from core_sdk.errors import (
    AttemptClaimedError,
    CheckpointDamagedError,
    CheckpointNotStoredError,
    GraceExceededError,
    HomeNotWritableError,
    InvalidMetricError,
    MediaTooLargeError,
    NotEnoughSpaceError,
    RecordDamagedError,
    ReportsDroppedError,
    StorageError,
    StorageUnreachableError,
    UnsafePathError,
    WriterRefusedError,
)
from core_sdk.train import Checkpoint, ScalingConfig, TorchTrainer

REPOSITORY = Path(__file__).parents[2]
StartScript = Callable[..., Script]
RunScript = Callable[..., tuple[int, str, str]]
StartServer = Callable[[str], BucketServer]

DENIED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


@dataclass(frozen=True)
class OpenedBucket:
    """`url` is for `checkpoint_storage`; every request passes the proxy."""

    url: str
    proxy: Proxy

    def checkpoints(self) -> list[str]:
        with contextlib.closing(storage_from_url(self.url)) as storage:
            return checkpoint_ids(storage)


def reports(home: Home, trial_id: int = 1, attempt: int = 1) -> list[Report]:
    records = read_records(home.trial(trial_id).journal_path(attempt))
    return [record for record in records if isinstance(record, Report)]


def core_sdk(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | variables)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    bit = random.Random(0).randrange(len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def store(context: core.Context, steps_completed: int) -> str:
    with context.checkpoint.store_path({"steps_completed": steps_completed}) as (path, storage_id):
        (path / "weights").write_bytes(b"w" * 10_000)
    return storage_id


def test_every_numbered_sentence_has_a_test() -> None:
    """Every numbered sentence of the contract has a test, and every test has its sentence."""
    page = (REPOSITORY / "docs" / "contract.md").read_text()
    numbers = sorted(int(number) for number in re.findall(r"(?:^|\| |\. )(\d+)\. ", page, re.MULTILINE))
    tested = {int(name.split("_")[1]) for name in globals() if re.match(r"test_\d+_", name)}

    assert numbers == sorted(tested) == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("death", ["raise ValueError", "sys.exit(1)", "os._exit(1)", "os.kill(os.getpid(), 15)",
                                   "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 11)"])  # fmt: skip
def test_01_a_returned_report_survives_any_death(home: Home, run_script: RunScript, death: str) -> None:
    """Every report whose call has returned is in the journal, however the process dies right after it."""
    run_script(
        f"""
        import os, sys
        from core_sdk import core
        with core.init() as context:
            for step in range(100):
                context.train.report_training_metrics(step, {{"loss": 0.5}})
            {death}
        """
    )

    assert [report.steps_completed for report in reports(home)] == list(range(100))


def test_02_it_is_read_back_once_and_exactly(home: Home) -> None:
    """Metrics are read back exactly, and only once, by an index that is refreshed twice."""
    values = {"a": 0.1, "nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0": -0.0, "max": 2**63, "min": -(2**63)}
    with core.init() as context:
        context.train.report_training_metrics(1, values)

    with Index(home) as index:
        index.refresh()
        index.refresh()
        (row,) = index.reports(1)
    assert repr(row.metrics) == repr({name: row.metrics[name] for name in row.metrics})
    assert {name: repr(value) for name, value in row.metrics.items()} == {n: repr(v) for n, v in values.items()}


def test_03_what_cannot_be_kept_is_refused_by_name(home: Home) -> None:
    """An invalid metric is refused by its name, and the valid metrics of the same report are not recorded either."""
    with core.init() as context, pytest.raises(InvalidMetricError, match="'bad'"):
        context.train.report_training_metrics(1, {"good": 1.0, "bad": "text"})

    assert reports(home) == []


@needs("strace")
def test_04_a_report_is_one_write(tmp_path: Path) -> None:
    """Between two reports the training thread makes no system call except one write."""
    source = """
import os
from core_sdk import client, core
with core.init() as context:
    for step in range(3):
        context.train.report_training_metrics(step, {"loss": 0.5})
    os.getppid()
    for step in range(3, 53):
        context.train.report_training_metrics(step, {"loss": 0.5})
    os.getppid()
"""
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-o", trace, sys.executable, "-c", source], check=True)

    # Without -f only the main thread is traced.
    between = trace.read_text().split("getppid()")[1].splitlines()[1:]
    # A line that begins with dashes is a signal: a child of the recorder of the environment has ended.
    calls = [call.split("(")[0] for call in between if call and not call.startswith("---")]
    assert [call for call in calls if call not in ("futex", "mmap", "munmap", "brk")] == ["write"] * 50


def test_05_an_fsync_follows_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An fsync outside of the training thread follows a report within about a second."""
    fsynced = threading.Event()
    fsync = os.fsync

    def counting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        if threading.current_thread() is not threading.main_thread():
            fsynced.set()

    monkeypatch.setattr(os, "fsync", counting_fsync)
    journal = JournalWriter(tmp_path / "1.journal")
    begin = time.monotonic()
    journal.append(Report(1.0, "training", 1, {"loss": 0.5}))

    assert fsynced.wait(timeout=5)
    assert time.monotonic() - begin < 2.0
    journal.close()


@pytest.mark.parametrize("damage", [lambda line: line.replace(b":5,", b":7,"), lambda line: line[:-1] + b"J"])
def test_06_a_damaged_record_is_skipped_and_counted(home: Home, damage: Callable[[bytes], bytes]) -> None:
    """A damaged record, also one with a damaged newline, is skipped and counted, and the other records are read."""
    with core.init() as context:
        for step in range(10):
            context.train.report_training_metrics(step, {"loss": 0.5})
    journal = home.trial(1).journal_path(1)
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[6] = damage(lines[6])
    journal.write_bytes(b"".join(lines))

    with Index(home) as index:
        index.refresh()
        steps = [row.steps_completed for row in index.reports(1)]
        assert index.trial(1).num_bad_lines == 1

    assert steps == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_06_a_damaged_trial_record_is_skipped_and_named(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """A trial with a damaged record is left out and named in the log, and the other trials are read."""
    for rate in (0.25, 0.5):
        with core.init(hparams={"lr": rate}):
            pass
    record = home.trial(1).path / "trial.json"
    record.write_bytes(record.read_bytes().replace(b"0.25", b"0.75"))

    with Index(home) as index:
        assert list(index.refresh().left_out) == [record.parent]
        assert [row.hparams for row in index.trials()] == [{"lr": 0.5}]
    assert str(record) in caplog.text


def test_07_a_resume_supersedes_what_lies_beyond_its_checkpoint_or_is_reported_again(
    home: Home, run_script: RunScript
) -> None:
    """A resume supersedes reports beyond its checkpoint or reported again; they are hidden, but can be asked for."""
    script = """
    from core_sdk import core
    with core.init() as context:
        begin = 0 if context.info.latest_checkpoint is None else 2
        for step in range(begin + 1, 6):
            context.train.report_training_metrics(step, {"loss": float(begin)})
            if step == 3:
                with context.checkpoint.store_path({"steps_completed": 3}) as (path, storage_id):
                    (path / "weights").write_text("w")
    """
    run_script(script)
    resumed = core_sdk("trial", "resume", "1", "--again")
    assert resumed.returncode == 0, resumed.stderr

    with Index(home) as index:
        index.refresh()
        visible = [(row.attempt, row.steps_completed) for row in index.reports(1)]
        everything = [(row.attempt, row.steps_completed) for row in index.reports(1, superseded=True)]
    assert visible == [(1, 1), (1, 2), (2, 3), (2, 4), (2, 5)]
    assert sorted(everything) == sorted([*visible, (1, 3), (1, 4), (1, 5)])


def test_07_of_two_reports_of_a_step_the_later_counts(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """Within an attempt: one that repeats the newest step is refused, and going back in steps is warned of once."""
    with core.init() as context:
        for step, loss in ((10, 1.0), (20, 2.0), (10, 3.0), (10, 4.0)):
            context.train.report_training_metrics(step, {"loss": loss})
        with pytest.raises(InvalidMetricError, match="'loss' of group 'training' was reported before"):
            context.train.report_training_metrics(20, {"loss": 5.0})

    with Index(home) as index:
        index.refresh()
        counting, everything = (
            [(row.steps_completed, row.metrics["loss"]) for row in index.reports(1, superseded=superseded)]
            for superseded in (False, True)
        )
    assert counting == [(10, 4.0), (20, 2.0)]
    assert everything == [(10, 1.0), (10, 3.0), (10, 4.0), (20, 2.0)]
    assert len([message for message in caplog.messages if "goes back" in message]) == 1


@pytest.mark.parametrize("last", [64, 1 << 12], ids=["the first", "all"])
def test_67_a_script_may_close_what_it_has_not_opened(home: Home, run_script: RunScript, last: int) -> None:
    """A script may close descriptors that it did not open, and neither its own files nor reports suffer."""
    source = """
import os, threading
from core_sdk import core
with core.init() as core_context:
    core_context.train.report_training_metrics(1, {"loss": 1.0})
    while any(thread.name == "core-sdk-environment" for thread in threading.enumerate()):
        pass
    os.closerange(3, LAST)
    own = [open(f"{os.environ['CORE_SDK_HOME']}/../own{number}", "wb") for number in range(40)]
    for step in range(2, 101):
        core_context.train.report_training_metrics(step, {"loss": 1.0})
    for file in own:
        file.close()
"""

    status, _, stderr = run_script(source.replace("LAST", str(last)))

    assert status == 0, stderr
    assert [each.steps_completed for each in reports(home)] == list(range(1, 101))
    assert [path.stat().st_size for path in home.root.parent.glob("own*")] == [0] * 40


@pytest.mark.parametrize("how", ["shutil.rmtree(home)", "shutil.rmtree(home / 'runs' / '1')", "home.rename(moved)"])
def test_69_what_is_reported_into_a_home_that_is_gone_is_dropped(home: Home, run_script: RunScript, how: str) -> None:
    """Reports into a home or a trial that was removed or renamed are dropped; the training ends with an error."""
    status, stdout, stderr = run_script(
        f"""
        import shutil
        from pathlib import Path
        from core_sdk import core
        from core_sdk.errors import CheckpointNotStoredError
        home, moved = Path({str(home.root)!r}), Path({str(home.root)!r} + "-moved")
        with core.init() as context:
            while (home / "runs" / "1").exists():
                try:
                    {how}
                except OSError:  # something was written meanwhile
                    pass
            context.train.report_training_metrics(1, {{"loss": 1.0}})
            try:
                with context.checkpoint.store_path({{"steps_completed": 1}}):
                    pass
            except CheckpointNotStoredError:
                print("refused")
        """
    )

    assert status == 1
    assert stdout == "refused\n"
    assert re.search(r"ReportsDroppedError: \d records could not be written.*was renamed or removed", stderr)
    assert not home.folder(1).path.exists()
    assert home.root.exists() == ("runs" in how)


def test_08_a_checkpoint_is_invisible_until_it_is_whole(home: Home) -> None:
    """While a checkpoint is written there is nothing under its name, and no record of it."""
    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            (path / "weights").write_bytes(b"w")
            assert not (home.checkpoints / storage_id).exists()
            assert not any(isinstance(r, CheckpointStored) for r in read_records(home.trial(1).journal_path(1)))

        assert {entry.name for entry in (home.checkpoints / storage_id).iterdir()} == {
            "weights", "metadata.json", ".manifest.json",
        }  # fmt: skip


def test_09_a_death_in_a_save_leaves_nothing_visible_and_is_swept(home: Home, run_script: RunScript) -> None:
    """A save that died leaves nothing visible and is swept by a later init; the earlier checkpoint is intact."""
    run_script(
        """
        import os
        from core_sdk import core
        with core.init() as context:
            for step in (1, 2):
                with context.checkpoint.store_path({"steps_completed": step}) as (path, storage_id):
                    (path / "weights").write_bytes(b"w" * 10_000)
                    if step == 2:
                        os.kill(os.getpid(), 9)
        """
    )
    with Index(home) as index:
        index.refresh()
        (first,) = index.checkpoints(trial_id=1)

    with core.init() as context:
        with context.checkpoint.restore_path(first.storage_id) as path:
            assert (path / "weights").read_bytes() == b"w" * 10_000
        store(context, 3)

    left = list(home.checkpoints.rglob("weights"))
    assert len(left) == 2


@pytest.mark.parametrize("damage", ["missing", "added", "shorter", "longer", "flipped"])
def test_10_reading_refuses_and_names_a_damaged_file(home: Home, damage: str) -> None:
    """Restoring a checkpoint with any kind of damage is refused with an error that names the file."""
    with core.init() as context:
        storage_id = store(context, 1)
        weights = home.checkpoints / storage_id / "weights"
        match damage:
            case "missing":
                weights.unlink()
            case "added":
                weights.with_name("another").touch()
            case "shorter":
                weights.write_bytes(weights.read_bytes()[:-1])
            case "longer":
                weights.write_bytes(weights.read_bytes() + b"w")
            case "flipped":
                flip_a_bit(weights)

        with pytest.raises(CheckpointDamagedError) as raised, context.checkpoint.restore_path(storage_id):
            pass

    assert raised.value.file == ("another" if damage == "added" else "weights")


def test_11_a_resume_falls_back_to_the_newest_good_checkpoint(home: Home, run_script: RunScript) -> None:
    """A resume falls back to the newest undamaged checkpoint and says which one it skipped."""
    script = """
    from core_sdk import core
    with core.init() as context:
        print("continued from", context.info.latest_checkpoint)
        for step in (1, 2):
            if context.info.latest_checkpoint is None:
                with context.checkpoint.store_path({"steps_completed": step}) as (path, storage_id):
                    (path / "weights").write_text("w")
    """
    run_script(script)
    with Index(home) as index:
        index.refresh()
        newest, older = (row.storage_id for row in index.checkpoints(trial_id=1))
    flip_a_bit(home.checkpoints / newest / "weights")

    resumed = core_sdk("trial", "resume", "1", "--again")

    assert f"continued from {older}" in resumed.stdout
    assert newest in resumed.stderr
    assert "weights" in resumed.stderr


@pytest.mark.parametrize("storage_id", ["", ".", "..", "../runs", "/", "a/b", "\x00", ".staging"])
def test_12_no_id_reaches_outside(home: Home, storage_id: str) -> None:
    """A storage id that leads outside of the storage, and an empty one, are refused, and nothing is deleted."""
    with core.init() as context:
        kept = store(context, 1)

        with pytest.raises(UnsafePathError):
            context.checkpoint.delete(storage_id)

    assert (home.checkpoints / kept / "weights").exists()
    assert home.trial_ids() == [1]


def test_12_nothing_is_deleted_through_a_link(home: Home, tmp_path: Path) -> None:
    """Deleting a checkpoint does not delete through a symbolic link that replaced one of its directories."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").write_bytes(b"precious")
    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            (path / "sub").mkdir()
            (path / "sub" / "x").write_bytes(b"weights")
        shutil.rmtree(home.checkpoints / storage_id / "sub")
        (home.checkpoints / storage_id / "sub").symlink_to(tmp_path / "mine")

        with pytest.raises(CheckpointDamagedError, match="'sub'"):
            context.checkpoint.delete(storage_id, ["sub/*"])
        context.checkpoint.delete(storage_id)

    assert (tmp_path / "mine" / "x").read_bytes() == b"precious"


def test_13_without_a_request_it_is_never_true(run_script: RunScript) -> None:
    """Without a request to stop, should_preempt() is never true, in 100,000 calls."""
    status, _, errors = run_script(
        """
        from core_sdk import core
        with core.init() as context:
            assert not any(context.preempt.should_preempt() for _ in range(100_000))
        """
    )

    assert status == 0, errors


def test_14_a_stopped_trial_is_paused_and_goes_on(home: Home, start_script: StartScript) -> None:
    """should_preempt() stays true until the stopped attempt ends as paused; the resumed attempt is not stopped."""
    script = start_script(
        """
        from core_sdk import core
        with core.init() as context:
            if context.info.trial.attempt == 1:
                print("running")
                while not context.preempt.should_preempt():
                    pass
            print(context.preempt.should_preempt())
        """
    )
    script.read_until("running")
    assert core_sdk("trial", "pause", "1").returncode == 0
    assert script.wait()[:2] == (0, "True\n")
    paused = list(read_records(home.trial(1).journal_path(1)))[-1]

    resumed = core_sdk("trial", "resume", "1")

    assert isinstance(paused, Ended)
    assert paused.outcome == "paused"
    assert "False" in resumed.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_15_a_script_that_never_asks_dies_of_a_signal(start_script: StartScript, number: int) -> None:
    """A signal kills a script that never asks should_preempt(), and does not kill one that asks."""
    deaf = start_script(
        "from core_sdk import core\nwith core.init():\n    print('on')\n    while True: pass\n", name="a.py"
    )
    listening = start_script(
        """
        from core_sdk import core
        with core.init() as context:
            context.preempt.should_preempt()
            print("on")
            while not context.preempt.should_preempt(): pass
        """,
        name="b.py",
    )
    listening_elsewhere = start_script(
        """
        import threading
        from core_sdk import core

        def train():
            context.preempt.should_preempt()
            print("on")
            while not context.preempt.should_preempt(): pass

        with core.init() as context:
            thread = threading.Thread(target=train)
            thread.start()
            thread.join()
        """,
        name="c.py",
    )
    for script in (deaf, listening, listening_elsewhere):
        script.read_until("on")
        script.process.send_signal(number)

    assert deaf.wait()[0] == -number
    assert listening.wait()[0] == listening_elsewhere.wait()[0] == 0


def test_15_the_second_ctrl_c_interrupts_any_script(start_script: StartScript) -> None:
    """The second Ctrl-C interrupts any script, and a script's own handler gets the first one."""
    source = """
        import signal, sys
        from core_sdk import core
        if sys.argv[1:] == ["own"]:
            signal.signal(signal.SIGINT, lambda *_: sys.exit(5))
        with core.init() as context:
            context.preempt.should_preempt()
            print("on")
            while True: pass
    """
    plain, own = start_script(source, name="a.py"), start_script(source, "own", name="b.py")
    for script in (plain, own):
        script.read_until("on")
        script.process.send_signal(signal.SIGINT)
    assert plain.process.stderr is not None
    assert "stopping at the next step" in plain.process.stderr.readline()
    plain.process.send_signal(signal.SIGINT)

    assert plain.wait()[0] == -signal.SIGINT
    assert own.wait()[0] == 5


def test_16_a_stop_is_seen_promptly(home: Home) -> None:
    """A signal at the next call; a pause within the polling interval, here with room for a busy machine."""
    with core.init() as context:
        assert not context.preempt.should_preempt()
        home.trial(1).request_stop(1, "a test")
        begin = time.monotonic()
        wait_for(context.preempt.should_preempt)

        assert time.monotonic() - begin < 2.0
    with core.init() as context:
        assert not context.preempt.should_preempt()
        signal.raise_signal(signal.SIGTERM)

        assert context.preempt.should_preempt()


def test_17_a_full_disk_never_stops_training(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk never stops a training: the lost reports are warned about, counted, recorded and raised once."""
    monkeypatch.setenv("CORE_SDK_HOME", str(small_disk / "home"))
    hog = small_disk / "hog"
    with warnings.catch_warnings(record=True) as caught, pytest.raises(ReportsDroppedError) as raised:
        warnings.simplefilter("always")
        with core.init() as context:
            hog.write_bytes(b"x" * 768 * 1024)
            for step in range(10_000):
                context.train.report_training_metrics(step, {"loss": 0.5})
            hog.unlink()
            context.train.report_training_metrics(10_000, {"loss": 0.5})

    kept = reports(Home(small_disk / "home"))
    (chunk,) = read_journal(Home(small_disk / "home").trial(1).journal_path(1))
    assert [warning.category for warning in caught if "dropped" in str(warning.message)] == [RuntimeWarning]
    assert len(kept) + raised.value.num_dropped == 10_001
    assert kept[-1].steps_completed == 10_000
    assert chunk.bad_lines == []


def test_18_a_full_disk_fails_the_save_and_leaves_the_earlier_one(small_disk: Path) -> None:
    """A save on a full disk fails, leaves the earlier checkpoint intact, and frees its space again."""
    with core.init(checkpoint_storage=str(small_disk / "checkpoints")) as context:
        kept = store(context, 1)
        with pytest.raises(NotEnoughSpaceError), context.checkpoint.store_path({"steps_completed": 2}) as (path, _):
            (path / "weights").write_bytes(b"x" * 2 * 1024 * 1024)

        with context.checkpoint.restore_path(kept) as path:
            assert (path / "weights").read_bytes() == b"w" * 10_000
        store(context, 3)


def test_18_a_save_whose_record_is_refused_raises(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the record of a save cannot be written, the save raises and its stored checkpoint is withdrawn."""
    monkeypatch.setenv("CORE_SDK_HOME", str(small_disk / "home"))
    storage = DirectoryStorage(small_disk.parent / "checkpoints")
    note = "n" * 4096
    with core.init(checkpoint_storage=str(storage.root)) as context:
        (small_disk / "hog").write_bytes(bytes(900_000))
        acknowledged = []
        with pytest.raises(CheckpointNotStoredError, match=r"1\.journal"):
            for step in range(1000):
                with context.checkpoint.store_path({"steps_completed": step, "note": note}) as (_, storage_id):
                    pass
                acknowledged.append(storage_id)
        (small_disk / "hog").unlink()

    recorded = [found.record.storage_id for found in read_history(Home(small_disk / "home").trial(1)).checkpoints]
    assert recorded == acknowledged
    assert checkpoint_ids(storage) == sorted(acknowledged)


def test_68_a_full_disk_can_be_freed(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion is recorded before the files go, on a disk where not a byte fits."""
    monkeypatch.setenv("CORE_SDK_HOME", str(small_disk / "home"))
    with core.init() as context:
        first, second = store(context, 1), store(context, 2)
    with contextlib.suppress(OSError), (small_disk / "hog").open("wb", buffering=0) as hog:
        while True:
            hog.write(bytes(100))

    client.get_checkpoint(first).delete()

    home = Home(small_disk / "home")
    changes = [type(record) for record in read_records(home.trial(1).changes_path)]
    assert changes == [CheckpointCondemned, CheckpointDeleted]
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == [second]


def test_19_order_is_the_order_of_calls(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports keep the order of their calls, even if the clock goes back an hour between them."""
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() - 3600)
        context.train.report_training_metrics(2, {"loss": 2.0})
        monkeypatch.undo()

    with Index(home) as index:
        index.refresh()
        rows = list(index.reports(1))
    assert [row.steps_completed for row in rows] == [1, 2]
    assert rows[0].time > rows[1].time
    assert [metrics_from_json(report.metrics) for report in reports(home)] == [{"loss": 1.0}, {"loss": 2.0}]


def test_20_an_unwritable_home_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """init() refuses a home that it cannot write to."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "file"))

    with pytest.raises(HomeNotWritableError):
        core.init()


@pytest.mark.parametrize("damage", ["gone", "garbage", "a flipped bit"])
def test_21_a_damaged_index_is_rebuilt(home: Home, damage: str) -> None:
    """An index that is missing or damaged is rebuilt from the journals."""
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
    with Index(home) as index:
        index.refresh()

    if damage == "gone":
        home.database.unlink()
    elif damage == "garbage":
        home.database.write_bytes(b"garbage" * 1000)
    else:
        half = struct.pack(">d", 0.5)
        home.database.write_bytes(home.database.read_bytes().replace(half, struct.pack(">d", 0.25)))

    with Index(home) as index:
        index.refresh()
        assert [row.metrics for row in index.reports(1)] == [{"loss": 0.5}]


@needs("many processes")
def test_22_a_second_claim_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch, run_script: RunScript) -> None:
    """A second process that claims the same attempt is refused, and the first one goes on."""
    script = """
    import subprocess, sys
    from core_sdk import core
    with core.init() as context:
        if len(sys.argv) == 1:
            second = subprocess.run([sys.executable, __file__, "second"], capture_output=True, text=True)
            print(second.stderr.splitlines()[-1])
            context.train.report_training_metrics(1, {"loss": 0.5})
    """
    path = home.root.parent / "train.py"
    run_script(script)  # writes the script; a run of its own, where the second start is a trial of its own

    claimed = core_sdk("run", "--", sys.executable, str(path))

    assert AttemptClaimedError.__name__ in claimed.stdout
    assert [report.steps_completed for report in reports(home, trial_id=3)] == [1]


def test_23_a_full_disk_does_not_reach_the_scripts_output(small_disk: Path, tmp_path: Path) -> None:
    """Output that a full disk cannot keep is dropped and counted, and the script ends successfully."""
    script = tmp_path / "talk.py"
    script.write_text(
        f"""
from pathlib import Path
hog = Path({str(small_disk / "hog")!r})
hog.write_bytes(b"x" * 700 * 1024)
for _ in range(1000):
    print("x" * 999)
hog.unlink()
print("the end")
"""
    )

    run = core_sdk("run", "--", sys.executable, str(script), CORE_SDK_HOME=str(small_disk / "home"))

    assert run.returncode == 0
    assert "bytes of output were dropped" in run.stdout
    assert run.stdout.endswith("the end\n")


RANK = """
    import os, signal, sys, time
    from core_sdk import core
    rank = int(sys.argv[1])
    distributed = core.DistributedContext(
        rank=rank, size=2, local_rank=rank, local_size=2, cross_rank=0, cross_size=1, timeout_s=20, join_timeout_s=20
    )
"""


def start_two_ranks(start_script: StartScript, body: str) -> list[Script]:
    source = textwrap.dedent(RANK) + textwrap.dedent(body)
    return [start_script(source, str(rank)) for rank in (0, 1)]


def test_24_each_rank_reports_once(home: Home, start_script: StartScript) -> None:
    """Metrics that all ranks report are shown once, of rank 0, and metrics only of rank 1 are shown too."""
    ranks = start_two_ranks(
        start_script,
        """
        with core.init(distributed=distributed) as context:
            for step in range(1, 11):
                context.train.report_training_metrics(step, {"loss": step + 100.0 * rank})
            if rank == 1:
                context.train.report_validation_metrics(10, {"accuracy": 0.5})
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )

    assert [rank.wait()[0] for rank in ranks] == [-9, -9]

    losses = [[(rank, {"loss": step + 100.0 * rank}) for step in range(1, 11)] for rank in (0, 1)]
    of_rank_1 = (1, {"accuracy": 0.5})
    assert home.trial_ids() == [1]
    with Index(home) as index:
        index.refresh()
        shown = [(row.rank, row.metrics) for row in index.reports(1)]
        recorded = [(row.rank, row.metrics) for row in index.reports(1, rank="all", superseded=True)]
        num_superseded = sum(row.is_superseded for row in index.reports(1, rank="all", superseded=True))
    assert shown == [*losses[0], of_rank_1]
    assert recorded == [*itertools.chain.from_iterable(zip(*losses, strict=True)), of_rank_1]
    assert num_superseded == 0


def test_63_rank_0_speaks_for_the_attempt(home: Home, start_script: StartScript) -> None:
    """Status, metadata and alerts come from rank 0; another rank is told once that its own are not recorded."""
    ranks = start_two_ranks(
        start_script,
        """
        with core.init(distributed=distributed) as context:
            distributed.allgather(context.train.set_status(f"of {rank}"))
            distributed.allgather(context.train.set_metadata({"rank": rank}))
            distributed.allgather(context.alert(f"of {rank}"))
        """,
    )

    (code, _, _), (other_code, _, errors) = [rank.wait() for rank in ranks]

    assert (code, other_code) == (0, 0)
    assert errors.count("rank 1 told what is not recorded") == 1
    with Index(home) as index:
        index.refresh()
        trial = index.trial(1)
    assert (trial.status, trial.metadata) == ("of 0", {"rank": 0})


@needs("hosts")
def test_63_a_rank_that_does_not_see_the_home_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that cannot see the home, as without a shared file system, records nothing and trains on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("CORE_SDK_HOME", str(disk / "home"))
    blind = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs tmpfs "{disk}" && exec "$@"', "sh"]
    ranks = Ranks(tmp_path)
    try:
        chief, other = ranks.run(
            """
            with core.init(distributed=distributed) as context:
                context.train.report_training_metrics(1, {"loss": 0.5})
                context.train.report_training_metrics(2, {"loss": 0.5})
                distributed.allgather(None)
            """,
            num_nodes=2,
            wrappers={1: blind},
        )
    finally:
        ranks.kill()

    assert (chief.code, other.code) == (0, 0)
    assert other.errors.count("does not see the home of rank 0") == 1
    with Index(Home(disk / "home")) as index:
        index.refresh()
        assert [row.rank for row in index.reports(1, rank="all")] == [0, 0]


@pytest.mark.parametrize("asked", [0, 1])
def test_25_ranks_stop_at_the_same_call(start_script: StartScript, asked: int) -> None:
    """All ranks stop at the same call of should_preempt(), although only one of them gets the signal."""
    ranks = start_two_ranks(
        start_script,
        """
        with core.init(distributed=distributed) as context:
            call = 1
            while not context.preempt.should_preempt():
                distributed.allgather(call)
                call += 1
                if call == 10:
                    print("running", flush=True)
            print(call, flush=True)
        """,
    )
    for rank in ranks:
        rank.read_until("running")

    ranks[asked].process.send_signal(signal.SIGTERM)

    (first, second) = [rank.wait() for rank in ranks]
    assert first == second


@pytest.mark.parametrize("dies", [0, 1])
def test_26_a_death_is_named_to_the_others(start_script: StartScript, dies: int) -> None:
    """When a rank dies, the others, waiting in a collective, get an error that names it within two seconds."""
    ranks = start_two_ranks(
        start_script,
        f"""
        distributed.allgather("ready")
        print("ready", flush=True)
        if rank == {dies}:
            time.sleep(60)
        distributed.allgather("never")
        """,
    )
    for rank in ranks:
        rank.read_until("ready")

    ranks[dies].process.kill()
    begin = time.monotonic()
    code, _, errors = ranks[1 - dies].wait()

    assert time.monotonic() - begin < 2
    assert code == 1
    assert f"RankDiedError: rank {dies} " in errors


def test_27_a_rank_that_fails_leaves_no_sharded_checkpoint(home: Home, start_script: StartScript) -> None:
    """A rank that fails in a sharded save leaves no checkpoint, and the earlier one stays."""
    ranks = start_two_ranks(
        start_script,
        """
        with core.init(distributed=distributed) as context:
            with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, storage_id):
                (path / f"shard-{rank}").write_text("whole")
            with context.checkpoint.store_path({"steps_completed": 2}, shard=True) as (path, storage_id):
                (path / f"shard-{rank}").write_text("half")
                if rank == 1:
                    raise ArithmeticError("no more room in my head")
        """,
    )

    outcomes = [rank.wait() for rank in ranks]

    assert [code for code, _, _ in outcomes] == [1, 1]
    assert "RankFailedError: rank 1 failed: ArithmeticError" in outcomes[0][2]
    (checkpoint,) = [path for path in home.checkpoints.iterdir() if not path.name.startswith(".")]
    assert {path.name for path in checkpoint.iterdir()} >= {"shard-0", "shard-1"}
    assert not [path for path in (home.checkpoints / ".staging").iterdir() if path.is_dir()]


@needs("many processes")
@pytest.mark.slow
def test_77_dcp_stores_all_or_nothing_for_any_number_of_ranks(home: Home, start_script: StartScript) -> None:
    """Two ranks store a tensor, and then one of them dies in `dcp.save()`; one rank loads it, and notices damage."""
    body = """
        import torch, torch.distributed as dist
        from torch.distributed import checkpoint as dcp
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        class Dying(dcp.DefaultSavePlanner):
            def resolve_data(self, write_item):
                os.kill(os.getpid(), signal.SIGKILL)
        dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
        with core.init(distributed=distributed) as context:
            weight = distribute_tensor(torch.arange(6.0), init_device_mesh("cpu", (2,)), [Shard(0)])
            dcp.save({"weight": weight}, storage_writer=context.checkpoint.dcp_writer({"steps_completed": 1}))
            writer = context.checkpoint.dcp_writer({"steps_completed": 2})
            dcp.save({"weight": weight}, storage_writer=writer, planner=Dying() if rank else None)
    """
    loading = """
        import sys, torch
        from pathlib import Path
        from torch.distributed import checkpoint as dcp
        from core_sdk import core
        state, (path, storage_id) = {"weight": torch.zeros(6)}, (Path(sys.argv[1]), sys.argv[2])
        with core.init() as context:
            dcp.load(state, storage_reader=context.checkpoint.dcp_reader(storage_id))
            print(state["weight"].tolist())
            path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
            dcp.load(state, storage_reader=context.checkpoint.dcp_reader(storage_id))
    """
    source = textwrap.dedent(RANK) + textwrap.dedent(body)
    ranks = [start_script(source, str(rank), str(home.root.parent / "store")) for rank in (0, 1)]

    outcomes = [rank.wait() for rank in ranks]
    (storage_id,) = checkpoint_ids(DirectoryStorage(home.checkpoints))
    file = home.checkpoints / storage_id / "__1_0.distcp"
    status, output, errors = start_script(loading, str(file), storage_id).wait()

    assert (outcomes[0][0], outcomes[1][0]) == (1, -signal.SIGKILL), outcomes
    assert (status, output) == (1, "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n"), errors
    assert "CheckpointDamagedError" in errors and file.name in errors


def test_28_a_stranger_is_never_unpickled(tmp_path: Path, start_script: StartScript) -> None:
    """A pickle that would leave a mark is sent to the chief's socket while it waits for its ranks."""
    mark = tmp_path / "mark"
    address = tmp_path / "meeting" / "chief"
    source = f"""
        import sys
        from core_sdk import core
        rank = int(sys.argv[1])
        distributed = core.DistributedContext(
            rank=rank, size=2, local_rank=rank, local_size=2, cross_rank=0, cross_size=1,
            rendezvous={str(tmp_path / "meeting")!r}, force_tcp=True,
        )
        print(distributed.allgather(rank))
        """
    chief = start_script(source, "0")
    wait_for(address.exists)
    port = msgspec.msgpack.decode(address.read_bytes())["tcp_port"]

    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(pickle.dumps(_Mark(mark)) * 10)
        member = start_script(source, "1")

        assert [chief.wait()[:2], member.wait()[:2]] == [(0, "[0, 1]\n"), (0, "[0, 1]\n")]
    assert not mark.exists()


class _Mark:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def bucket(start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenedBucket]:
    """A server of Google's kind, with the fault proxy before it, where this process and its scripts find it."""
    server = start_server("strict GCS")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with start_proxy(server.address) as proxy:
        for name, value in server.variables(proxy.address).items():
            monkeypatch.setenv(name, value)
        yield OpenedBucket(server.make_bucket(), proxy)


def is_manifest(request: WireRequest) -> bool:
    """Nothing else is sent only if none is there."""
    return request.method == "POST" and "ifGenerationMatch=0" in request.query


def is_part(request: WireRequest) -> bool:
    return request.method == "PUT" and "partNumber" in request.query


def test_29_a_bucket_has_a_checkpoint_from_its_manifest_on(home: Home, bucket: OpenedBucket) -> None:
    """A checkpoint in a bucket exists from its manifest on, and is not listed the moment before."""
    seen: list[list[str]] = []

    def look(exchange: Exchange) -> None:
        seen.append(bucket.checkpoints())
        exchange.pass_on()

    bucket.proxy.fault(is_manifest, look)
    with core.init(checkpoint_storage=bucket.url) as context:
        storage_id = store(context, 1)

    assert seen == [[]]
    assert bucket.checkpoints() == [storage_id]


def test_29_a_bit_that_flipped_in_a_bucket_is_noticed(home: Home, bucket: OpenedBucket) -> None:
    """A bit that flipped in a bucket is noticed when the checkpoint is restored, and its file is named."""
    with core.init(checkpoint_storage=bucket.url) as context:
        storage_id = store(context, 1)
        bucket_at(bucket.url).put(f"{storage_id}/weights", b"w" * 9_999 + b"v")

        with pytest.raises(CheckpointDamagedError) as raised, context.checkpoint.restore_path(storage_id):
            pass

    assert raised.value.file == "weights"


def test_30_what_a_dead_process_left_in_a_bucket_is_swept(
    home: Home, bucket: OpenedBucket, start_script: StartScript
) -> None:
    """Objects and parts of uploads that a killed process left in a bucket are swept by a later init."""
    killed = threading.Event()

    def kill(exchange: Exchange) -> None:
        script.process.kill()
        script.process.wait()
        killed.set()
        raise DropConnection

    bucket.proxy.fault(lambda request: request.method == "POST" and "uploadId" in request.query, kill)
    script = start_script(
        """
        import sys
        from core_sdk import core
        with core.init(checkpoint_storage=sys.argv[1]) as context:
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
                (path / "small").write_bytes(b"w" * 10_000)
                (path / "large").write_bytes(bytes(9 << 20))
        """,
        bucket.url,
    )
    assert killed.wait(30)
    parts = [entry.path for entry in bucket.proxy.log if entry.method == "PUT"]

    left = bucket_at(bucket.url)

    def remains() -> list[str]:
        return [item.name for item in left.list() if item.size_bytes and not item.name.startswith(".leases/")]

    with core.init(checkpoint_storage=bucket.url):
        wait_for(
            lambda: not remains() and any(each.method == "DELETE" and each.path in parts for each in bucket.proxy.log)
        )

    assert len(parts) == 1
    assert bucket.checkpoints() == []
    assert left.abort_uploads("") == 0


def test_62_a_sweep_delays_nobody(home: Home, bucket: OpenedBucket, caplog: pytest.LogCaptureFixture) -> None:
    """A sweep that gets no answer, or errors, from the store delays neither init() nor a save."""
    begun, released = threading.Event(), threading.Event()

    def is_of_sweep(request: WireRequest) -> bool:
        return request.method == "GET" and ".leases/" in unquote(request.query)

    bucket.proxy.fault(is_of_sweep, faults.stall(begun, released))
    with core.init(checkpoint_storage=bucket.url) as context:
        assert begun.wait(30)
        store(context, 1)
    assert "stays" not in caplog.text

    released.set()
    bucket.proxy.fault(is_of_sweep, faults.answer("501 Not Implemented", {}, b""))
    with core.init(checkpoint_storage=bucket.url):
        wait_for(lambda: "what dead processes may have left" in caplog.text)

    assert len(bucket.checkpoints()) == 1


def test_54_a_silent_store_is_named(home: Home, bucket: OpenedBucket, caplog: pytest.LogCaptureFixture) -> None:
    """When the store does not answer a save, the log says which store is waited for, since when and until when."""
    reached, released = threading.Event(), threading.Event()
    with core.init(checkpoint_storage=bucket.url) as context:
        bucket.proxy.fault(lambda request: request.method in ("PUT", "POST"), faults.stall(reached, released))
        saving = threading.Thread(target=store, args=(context, 1))
        saving.start()
        wait_for(lambda: "waiting for" in caplog.text)
        released.set()
        saving.join()

    assert re.search(r"waiting for gs://\S+ since [\d:]+ \(5 s\); it is tried until about [\d:]+\.", caplog.text)
    assert "CORE_SDK_STORAGE_DEADLINE_S" in caplog.text
    assert "Ctrl-C" in caplog.text


def test_31_no_credential_is_told(
    home: Home, start_server: StartServer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Credentials appear in no error, no log at any level, and no file of the home."""
    server = start_server("moto")
    caplog.set_level(logging.DEBUG)
    with start_proxy(server.address) as proxy:
        place = server.make_bucket(proxy.address).split("/")[2]
        endpoint = f"http://127.0.0.1:{proxy.address[1]}"
        config = {"type": "s3", "bucket": place, "endpoint_url": endpoint, "temp_dir": str(tmp_path)}
        config |= {"access_key": "planted-access-key", "secret_key": "planted-secret-key"}
        with core.init(checkpoint_storage=config) as context:
            store(context, 1)
            proxy.fault(
                lambda request: True, faults.answer("403 Forbidden", {"Content-Type": "application/xml"}, DENIED)
            )
            with pytest.raises(StorageError) as raised:
                store(context, 2)
            proxy.reset()

    texts = [str(raised.value), caplog.text, *(p.read_text("latin-1") for p in home.root.rglob("*") if p.is_file())]
    assert [text for text in texts if "planted-secret-key" in text] == []
    assert "s3:GetObject" in str(raised.value)


def test_32_reports_flow_while_a_checkpoint_is_on_its_way(home: Home, bucket: OpenedBucket) -> None:
    """Reports are recorded while a checkpoint is uploaded, and the checkpoint is not listed before it is complete."""
    reached, released = threading.Event(), threading.Event()
    bucket.proxy.fault(is_manifest, faults.stall(reached, released))
    with core.init(checkpoint_storage=bucket.url) as context:
        with context.checkpoint.store_path({"steps_completed": 1}, wait=False) as (path, storage_id):
            (path / "weights").write_bytes(b"w" * 10_000)
        assert reached.wait(30)

        context.train.report_training_metrics(1, {"loss": 0.5})
        meanwhile = list(read_records(home.trial(1).journal_path(1)))
        listed = bucket.checkpoints()
        released.set()
        context.checkpoint.wait()

    assert any(isinstance(record, Report) for record in meanwhile)
    assert not any(isinstance(record, CheckpointStored) for record in meanwhile)
    assert listed == []
    assert bucket.checkpoints() == [storage_id]


@pytest.mark.parametrize("asked", ["wait", "the next save", "leaving"])
def test_33_a_failure_in_the_background_is_raised_once(home: Home, asked: str) -> None:
    """A background save's failure is raised once, by the first of wait(), the next save and leaving the context."""
    context = core.init()
    calls: dict[str, Callable[[], object]] = {
        "wait": context.checkpoint.wait,
        "the next save": lambda: store(context, 2),
        "leaving": context.close,
    }
    with context.checkpoint.store_path({"steps_completed": 1}, wait=False) as (path, _):
        (path / "metadata.json").write_text("{}")

    with pytest.raises(ValueError, match="Core SDK's own"):
        calls[asked]()

    context.checkpoint.wait()
    context.close()
    assert list(home.checkpoints.glob("*-*")) == []


def test_34_a_save_beyond_the_grace_is_given_up(
    home: Home, bucket: OpenedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that exceeds the grace period is given up, and no part of it becomes visible."""
    monkeypatch.setenv("CORE_SDK_GRACE_S", "0.5")
    bucket.proxy.fault(is_part, faults.status(503))

    with pytest.raises(GraceExceededError), core.init(checkpoint_storage=bucket.url, deadline=0.01) as context:
        wait_for(context.preempt.should_preempt)
        with context.checkpoint.store_path({"steps_completed": 1}, wait=False) as (path, _):
            (path / "weights").write_bytes(bytes(9 << 20))

    bucket.proxy.reset()
    assert bucket.checkpoints() == []


def test_65_what_changes_after_a_save_does_not_show_in_the_checkpoint(home: Home) -> None:
    """A background save has the state at its call, although the training changes it meanwhile."""
    training = Training()
    running = training.run()
    with core.init() as context:
        next(running), next(running)
        context.info.latest_checkpoint = training.state.save(context, wait=False)
        rest = list(running)
        resumed = Training()
        resumed.state.restore(context)

        assert list(resumed.run()) == rest


@pytest.fixture
def two_checkpoints(home: Home) -> Home:
    """Two checkpoints of one trial that has ended: "older" and "newer"."""
    training = new_attempt(new_trial(home))
    for steps, storage_id in enumerate(("older", "newer"), start=1):
        store_recorded(training, storage_id, steps)
    training.end()
    return home


KEEP_NONE = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 0}


def test_35_nothing_is_deleted_that_nobody_asked_for(two_checkpoints: Home) -> None:
    """Collection deletes nothing without a policy, and never what another home has stored in the same place."""
    storage = DirectoryStorage(two_checkpoints.checkpoints)
    with storage.stage("foreign") as staging:
        store_alone(staging, {"steps_completed": 1})

    unasked = collect(two_checkpoints, Request())
    asked = collect(two_checkpoints, Request(policy=KEEP_NONE))

    assert unasked.deleted == ()
    assert [verdict.storage_id for verdict in asked.deleted] == ["older"]
    assert checkpoint_ids(storage) == ["foreign", "newer"]


@pytest.mark.parametrize(
    "reason",
    [
        "the only good one",
        "pinned",
        "a version",
        "a beginning",
        "an experiment",
        "in use",
        "being read",
        "unreachable",
    ],
)
def test_36_what_is_needed_is_never_deleted(two_checkpoints: Home, reason: str) -> None:
    """Collection keeps a checkpoint that is needed for any reason, such as a pin, a version or a reader."""
    home, folder, reading = two_checkpoints, two_checkpoints.trial(1), contextlib.ExitStack()
    match reason:
        case "the only good one":
            damage(home, "newer")
        case "pinned":
            folder.append_change(CheckpointPinned(time=0.0, storage_id="older"))
        case "a version":
            registry = Registry(home)
            registry.register(registry.create("digits", "", {}, ()).model_id, folder, "older", "", "")
        case "a beginning":
            new_trial(home, continued_from="older")
        case "in use":
            new_attempt(new_trial(home)).append(CheckpointUsed(time=0.0, storage_id="older"))
        case "an experiment":
            experiment = home.new_experiment("later")
            experiment.write_submission(SubmissionRecord(cwd="/", warm_start="older"))
        case "being read":
            reading.enter_context(DirectoryStorage(home.checkpoints).open("older"))
        case "unreachable":
            home.checkpoints.rename(home.root / "unmounted")

    with reading:
        collect(home, Request(policy=KEEP_NONE))

    kept = home.root / "unmounted" if reason == "unreachable" else home.checkpoints
    assert (kept / "older" / "weights.bin").exists()
    listed = [recorded.record.storage_id for recorded in read_history(folder).checkpoints]
    assert "older" in listed


def test_37_a_deletion_that_was_begun_is_finished(two_checkpoints: Home) -> None:
    """A deletion whose collector was killed is finished by the next one, and its checkpoint is never used again."""
    folder = two_checkpoints.trial(1)
    folder.append_change(CheckpointCondemned(time=0.0, storage_id="newer"))
    with Index(two_checkpoints) as index:
        index.refresh()
        states = {row.storage_id: row.state for row in index.checkpoints()}
    continuation = newest_good_checkpoint(folder).checkpoint

    collect(two_checkpoints, Request(policy=KEEP_NONE))

    assert states == {"older": "COMPLETED", "newer": "DELETED"}
    assert continuation is not None
    assert continuation.storage_id == "older"
    assert checkpoint_ids(DirectoryStorage(two_checkpoints.checkpoints)) == ["older"]


def test_38_a_bucket_that_is_away_fails_saves_and_resumes_only(
    home: Home, bucket: OpenedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a bucket is away, only saves and resumes fail; reports go on, and saves do once it is back."""
    monkeypatch.setenv("CORE_SDK_STORAGE_DEADLINE_S", "0.2")
    with core.init(checkpoint_storage=bucket.url) as context:
        kept = store(context, 1)
        bucket.proxy.fault(lambda request: True, faults.status(503))

        with pytest.raises(StorageUnreachableError):
            store(context, 2)
        with pytest.raises(StorageUnreachableError):
            newest_good_checkpoint(home.trial(1))
        context.train.report_training_metrics(2, {"loss": 0.5})
        bucket.proxy.reset()
        last = store(context, 3)

    assert len(reports(home)) == 1
    assert bucket.checkpoints() == sorted([kept, last])


def test_39_sigusr1_is_sigterm_under_slurm(home: Home, start_script: StartScript) -> None:
    """Under Slurm, SIGUSR1 stops a script as SIGTERM does; without Slurm it kills as usual."""
    source = """
        from core_sdk import core
        with core.init() as context:
            context.preempt.should_preempt()
            print("on")
            while not context.preempt.should_preempt(): pass
        """
    scripts = [
        start_script(source, name=f"{job or 'none'}.py", CORE_SDK_HOME=str(home.root / job), SLURM_JOB_ID=job)
        for job in ("7", "")
    ]
    for script in scripts:
        script.read_until("on")
        script.process.send_signal(signal.SIGUSR1)

    assert [script.wait()[0] for script in scripts] == [75, -signal.SIGUSR1]


def test_76_workers_of_a_loader_leave_a_stop_to_their_rank(home: Home, start_script: StartScript) -> None:
    """A SIGTERM to all processes stops a training whose loader has workers in good order; killed, it leaves none."""
    source = """
        from torch.utils.data import DataLoader
        from core_sdk import core
        with core.init() as context:
            for batch in DataLoader(range(10**9), num_workers=2):
                if batch == 0: print("on")
                if context.preempt.should_preempt(): break
        """
    stopped, killed = (start_script(source, name=f"{name}.py") for name in ("stopped", "killed"))
    workers = {}
    for script, end in ((stopped, signal.SIGTERM), (killed, signal.SIGKILL)):
        script.read_until("on")
        rank = psutil.Process(script.process.pid)
        workers[script] = rank.children()
        for process in rank.children():
            process.terminate()
        rank.send_signal(end)

    assert [script.wait()[0] for script in (stopped, killed)] == [0, -signal.SIGKILL]
    assert {client.get_trial(number).state.name for number in (1, 2)} == {"PAUSED", "ERROR"}
    for script in (stopped, killed):
        assert len(workers[script]) == 2
        psutil.wait_procs(workers[script], timeout=30)
        assert not any(worker.is_running() for worker in workers[script])


def test_40_a_notice_stops_those_who_ask_for_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud's stop notice stops only those who ask for notices, and a hanging metadata server delays nothing."""
    with GoogleStub("hangs") as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.variables["GCE_METADATA_HOST"])
        server.say(preempted="TRUE")
        with core.init() as context:
            assert not context.preempt.should_preempt()
        assert server.requests == []

        with core.init(stop_notices="gce") as context:
            server.wait_for_requests(1)
            assert not context.preempt.should_preempt()
            server.say(fault=None)
            wait_for(context.preempt.should_preempt)


UNWATCHED = """
    import time
    from pathlib import Path
    from core_sdk import core
    print("on")
    while not Path("begin").exists(): time.sleep(0.01)
    with core.init() as context:
        while not context.preempt.should_preempt(): time.sleep(0.01)
    print("off")
    raise SystemExit(75)
"""


def start_unwatched(home: Home, directory: Path) -> subprocess.Popen[str]:
    """A `core-sdk run` whose script has not called `init()` yet."""
    script = directory / "train.py"
    script.write_text(textwrap.dedent(UNWATCHED))
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", sys.executable, str(script)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=directory)
    assert run.stdout is not None
    assert run.stdout.readline() == "on\n"
    return run


@needs("many processes")
def test_41_a_killed_command_costs_nothing(home: Home, tmp_path: Path) -> None:
    """After its `core-sdk run` was killed, a trial runs on, keeps its output, and can be paused."""
    run = start_unwatched(home, tmp_path)

    run.kill()
    run.communicate()
    (tmp_path / "begin").touch()
    wait_for(lambda: home.trial(1).journal_path(1).exists())
    core_sdk("trial", "pause", "1", "--wait")

    exit_record = home.trial(1).read_exit(1)
    assert exit_record is not None
    assert exit_record.code == 75
    first, *_, last = home.trial(1).log_path(1).read_text().splitlines()  # the script may say that it is stopping
    assert (first, last) == ("on", "off")
    assert client.get_trial(1).state is client.TrialState.PAUSED


@needs("many processes")
@pytest.mark.parametrize(
    "command", [["core_sdk._interfaces.cli", "run", "--", sys.executable, "-m"], []], ids=["run", "launcher"]
)
def test_64_a_closed_terminal_costs_nothing(home: Home, tmp_path: Path, command: list[str]) -> None:
    """A training outlives its closed terminal, whether started by `core-sdk run` or by a launcher."""
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import time
            from pathlib import Path
            from core_sdk import core

            with core.init() as context:
                print("on", flush=True)
                while not Path("go").exists():
                    time.sleep(0.01)
                context.train.report_training_metrics(1, {"loss": 1.0})
            """
        )
    )
    person = Person(tmp_path, [sys.executable, "-m", *command, "launch.torch_distributed", "train.py"])
    person.reads("[rank=0] on")

    person.closes_the_terminal()
    if command:
        person.process.wait(60)
    (tmp_path / "go").touch()
    wait_for(lambda: client.get_trial(1).state is not client.TrialState.ACTIVE)
    person.leaves()

    assert client.get_trial(1).state is client.TrialState.COMPLETED
    assert len(reports(home)) == 1


@needs("many processes")
def test_42_no_script_runs_unsupervised(home: Home, tmp_path: Path) -> None:
    """A resume is refused before `init()` too; with its agent the script dies."""
    run = start_unwatched(home, tmp_path)
    [agent] = [child for child in psutil.Process(run.pid).children() if "core_sdk._execution.agent" in child.cmdline()]
    scripts = [child for child in agent.children() if "train.py" in child.cmdline()[-1]]

    refused = core_sdk("trial", "resume", "1")
    agent.kill()
    run.communicate()

    assert "attempt 1 is running" in refused.stderr
    assert len(scripts) == 1
    assert psutil.wait_procs(scripts, timeout=60)[1] == []


@needs("many processes")
def test_53_nothing_runs_below_what_was_killed(home: Home, tmp_path: Path) -> None:
    """Ranks end with their killed agent; if their launcher and guardians are killed too, `trial kill` ends them."""
    tree = ProcessTree(home.root, tmp_path)
    try:
        for trial_id, killed in enumerate((["agent"], ["agent", "agent's guardian", "launcher", "guardian"]), 1):
            tree.run(SCRIPT, "start", program=[*TORCH, "--nproc-per-node=2", "--"])
            wait_for(lambda: {"rank0", "rank1", *killed} <= set(tree.roles()))  # noqa: B023
            tree.kill(*killed, "command")
            if "guardian" in killed:
                refused = core_sdk("trial", "resume", str(trial_id))
                ended = core_sdk("trial", "kill", str(trial_id))
            tree.wait_until_gone(60)
    finally:
        tree.kill_all()

    assert refused.returncode != 0
    assert ended.returncode == 0, ended.stderr
    assert client.get_trial(2).state is client.TrialState.CANCELED


@needs("many processes")
def test_43_a_kill_leaves_nothing(home: Home, tmp_path: Path) -> None:
    """The command in the foreground tells of it, and a resume begins a new attempt."""
    run = start_unwatched(home, tmp_path)
    [agent] = [child for child in psutil.Process(run.pid).children() if "core_sdk._execution.agent" in child.cmdline()]
    processes = agent.children(recursive=True)

    killed = core_sdk("trial", "kill", "1")
    is_left = any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    run.communicate()
    state = client.get_trial(1).state
    (tmp_path / "begin").touch()
    resumed = subprocess.Popen(
        [sys.executable, "-m", "core_sdk._interfaces.cli", "trial", "resume", "1"], stdout=subprocess.DEVNULL
    )
    wait_for(lambda: home.trial(1).journal_path(2).exists())
    running = client.get_trial(1).state
    core_sdk("trial", "pause", "1")
    resumed.wait()

    assert killed.returncode == 0, killed.stderr
    assert not is_left
    assert run.returncode == 130
    assert state is client.TrialState.CANCELED
    assert running is client.TrialState.ACTIVE


AFTERWARDS = """
import time
from core_sdk import core

with core.init():
    pass
print("left", flush=True)
time.sleep(120)
"""


@needs("many processes")
def test_43_a_kill_leaves_the_end_that_a_script_has_recorded(home: Home, tmp_path: Path) -> None:
    """`trial kill` after the script has left its context leaves the recorded end as it is."""
    (tmp_path / "afterwards.py").write_text(AFTERWARDS)
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "core_sdk._interfaces.cli",
            "run",
            "--",
            sys.executable,
            str(tmp_path / "afterwards.py"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "left\n"

    killed = core_sdk("trial", "kill", "1")
    run.communicate()

    assert killed.returncode == 0, killed.stderr
    assert "it had ended before (COMPLETED)" in killed.stderr
    assert run.returncode == 0
    assert client.get_trial(1).state is client.TrialState.COMPLETED


REPORTS_ON = """
import time
from core_sdk import core

with core.init() as context:
    x = context.info.trial.hparams["x"]
    for epoch in range(1, 9):
        context.train.report_validation_metrics(epoch, {"loss": x + 1 / epoch, "epochs": epoch})
        print("epoch", epoch, flush=True)
        if context.preempt.should_preempt():
            context.train.report_validation_metrics(epoch + 1, {"loss": -1.0, "epochs": epoch + 1})
            break
        time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def killed_search(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A search that has ended, whose master was killed on the way. Trials that it has stopped report once more."""
    tmp_path = tmp_path_factory.mktemp("search")
    home = Home.create(tmp_path / "home")
    before = dict(os.environ)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    submit_search(home, tmp_path, max_trials=4, max_concurrent=2, max_time=8, train=REPORTS_ON)
    wait_for(lambda: any(isinstance(event, ValidationRead) for event in events_of(home, 1)))
    os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    wait_for(lambda: not is_master_running(home.root))
    call(home.root, GetStatus())
    await_end(home, 1)
    call(home.root, Down())
    os.environ.update(before)
    return home


@needs("many processes")
def test_44_a_submitted_experiment_is_carried_out(home: Home, tmp_path: Path) -> None:
    """A submitted experiment is finished by the next master if the first is killed; a refused one leaves no trace."""
    (tmp_path / "train.py").write_text("print('trained')")
    config = tmp_path / "one.yaml"
    config.write_text(f"{{name: one, entrypoint: [{sys.executable}, train.py], searcher: {{name: single, metric: m}}}}")

    refused = core_sdk("experiment", "create", str(config), str(tmp_path), "--config", "searcher.name=two")
    created = core_sdk("experiment", "create", str(config), str(tmp_path), "--paused")
    os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    wait_for(lambda: not is_master_running(home.root))
    activated = core_sdk("experiment", "activate", "one")
    waited = core_sdk("experiment", "wait", "one")
    call(home.root, Down())

    assert refused.returncode == 2
    assert [one.returncode for one in (created, activated, waited)] == [0, 0, 0], created.stderr + waited.stderr
    assert [experiment.name for experiment in client.list_experiments()] == ["one"]
    assert home.trial(1).log_path(1).read_text() == "trained\n"


@needs("many processes")
def test_45_every_decision_follows_from_the_events_before_it(killed_search: Home) -> None:
    """Each decision in an experiment's log follows from earlier events: no start, stop or end precedes its cause."""
    experiment = ExperimentStateMachine(1, SubmittedExperiment(killed_search, 1).config)

    for event in events_of(killed_search, 1):
        match event:
            case TrialNumbered():
                assert event.request_id in experiment.waiting
            case AttemptBegun():
                assert event.request_id in experiment.waiting
                trial_id = experiment.trials[event.request_id].trial_id or 0
                begun = next(iter(read_records(killed_search.trial(trial_id).journal_path(event.attempt))))
                assert event.time <= begun.time
            case StopSent():
                assert AskToStop(event.request_id, event.reason) in experiment.outstanding()
            case ExperimentEnded():
                assert Finish(event.state, event.reason) in experiment.outstanding()
        experiment.apply(event)

    assert experiment.state == "COMPLETED"


def test_46_a_killed_master_costs_nothing(killed_search: Home) -> None:
    """The searcher has read every report once, and every line of output was kept."""
    events = events_of(killed_search, 1)
    trial_ids = {event.request_id: event.trial_id for event in events if isinstance(event, TrialNumbered)}

    read = [(trial_ids[event.request_id], event.length) for event in events if isinstance(event, ValidationRead)]
    reported = [
        (trial_id, metrics_from_json(report.metrics)["epochs"])
        for trial_id in trial_ids.values()
        for report in reports(killed_search, trial_id)
    ]
    logs = {trial_id: killed_search.trial(trial_id).log_path(1).read_text() for trial_id in trial_ids.values()}
    # A script that is stopped may say so.
    printed = {trial_id: re.sub("stopping at .*\n", "", log).splitlines() for trial_id, log in logs.items()}
    assert sorted(read) == sorted(reported)
    assert all(lines == [f"epoch {number}" for number in range(1, len(lines) + 1)] for lines in printed.values())
    assert all(lines for lines in printed.values())


def test_47_no_attempt_begins_twice(killed_search: Home) -> None:
    """No attempt begins twice, and none before the trial's previous attempt has ended."""
    running: set[UUID] = set()
    begun: list[tuple[UUID, int]] = []
    for event in events_of(killed_search, 1):
        if isinstance(event, AttemptBegun):
            assert event.request_id not in running
            running.add(event.request_id)
            begun.append((event.request_id, event.attempt))
        elif isinstance(event, AttemptOver):
            running.remove(event.request_id)

    assert len(begun) == len(set(begun)) == 4
    assert [killed_search.trial(trial_id).attempts() for trial_id in range(1, 5)] == [[1]] * 4


def test_48_a_stopped_trial_reaches_the_searcher_no_more(killed_search: Home) -> None:
    """The searcher does not see what a trial reports after it has been stopped."""
    experiment = ExperimentStateMachine(1, SubmittedExperiment(killed_search, 1).config)
    for event in events_of(killed_search, 1):
        experiment.apply(event)

    losses = [
        metrics_from_json(report.metrics)["loss"]
        for trial_id in range(1, 5)
        for report in reports(killed_search, trial_id)
    ]
    assert -1.0 in losses
    assert all(trial.metric != -1.0 for trial in experiment.trials.values())


def test_49_a_home_has_one_master(home: Home) -> None:
    """A second master for the same home cannot start, and the first one still answers."""
    with running_master(Home.create(home.root)):
        with pytest.raises(BlockingIOError):
            Master(home, Machine(1))

        answered = call(home.root, GetStatus())

    assert answered.pid == os.getpid()


def test_57_damage_lets_one_experiment_stand_still(home: Home, tmp_path: Path) -> None:
    """A damaged experiment is paused alone, its trial trains on, and it resumes when its file is whole again."""
    with made_home(home, tmp_path) as made:
        path = made.folder(made.running).events_path
        whole = path.read_bytes()
        damaged = flip(whole, 8 * (len(whole) // 2))
        replace(path, damaged)
        with opened_master(home):
            states, problem, running = made.states(), made.problem(made.running), home.folder(made.running_trial)

            assert states == {made.running: "DAMAGED", made.paused: "PAUSED"}
            assert str(path) in problem and path.read_bytes() == damaged
            assert running.running_attempt() is not None
            replace(path, whole)
            wait_for(lambda: made.states() == {made.running: "ACTIVE", made.paused: "PAUSED"})


SAVES_LATE = """
import time
from pathlib import Path
from core_sdk import core

with core.init() as context:
    while not context.preempt.should_preempt():
        time.sleep(0.05)
    Path("saving").touch()
    while not Path("may save").exists():
        time.sleep(0.05)
"""


def test_58_a_stop_has_its_time_whatever_the_clock_does(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that is stopped gets its full time to save, even if the clock jumps and the master is replaced."""
    text = f"{{name: one, entrypoint: [{sys.executable}, train.py], searcher: {{name: single, metric: m}}}}"
    with opened_master(Home.create(home.root)):
        experiment_id = submit_text(home, tmp_path, text, SAVES_LATE)
        code = home.folder(1).code_path
        wait_for(lambda: home.folder(1).journal_path(1).exists())
        call(home.root, Want(experiment_id=experiment_id, state="PAUSED"))
        wait_for((code / "saving").exists)
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 7200)
        for _ in range(3):  # between two answers the master looks at its attempts
            call(home.root, GetStatus())
    with opened_master(home):
        for _ in range(3):
            call(home.root, GetStatus())
        (code / "may save").touch()
        wait_for(lambda: any(isinstance(event, AttemptOver) for event in events_of(home, experiment_id)))

    kinds = [type(event).__name__ for event in events_of(home, experiment_id)]
    assert "StopSent" in kinds and "KillSent" not in kinds


@needs("many processes")
def test_59_a_killed_master_comes_back(home: Home, tmp_path: Path) -> None:
    """A killed master restarts at the end of a trial without any command; one that was shut down does not."""
    marker = tmp_path / "may end"
    train = f"import time, pathlib\nwhile not pathlib.Path({str(marker)!r}).exists(): time.sleep(0.05)"
    search = "{name: random, metric: m, max_trials: 2, max_concurrent_trials: 1}"
    hyperparameters = "{x: {type: double, minval: 0, maxval: 1}}"
    entrypoint = f"[{sys.executable}, train.py]"
    text = f"{{name: one, entrypoint: {entrypoint}, searcher: {search}, hyperparameters: {hyperparameters}}}"
    experiment_id = submit_text(home, tmp_path, text, train)
    wait_for(lambda: home.folder(1).exists() and home.folder(1).running_attempt() is not None)
    core_sdk("master", "down")
    listed = core_sdk("queue", "list")
    assert listed.returncode == 0 and not is_master_running(home.root)
    os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    wait_for(lambda: not is_master_running(home.root))

    marker.touch()
    await_end(home, experiment_id)

    assert len(home.trial_ids()) == 2
    call(home.root, Down())


def test_50_a_training_resumes_exactly() -> None:
    """A training resumes exactly in mid-epoch, with shuffled, augmented data, dropout and a learning-rate schedule."""
    undisturbed = list(Training().run())
    stopped = Training()
    seen = list(itertools.islice(stopped.run(), 5))
    checkpoint = pickle.loads(pickle.dumps(stopped.state.state_dict()))
    random.seed()
    resumed = Training()
    resumed.state.load_state_dict(checkpoint)

    assert stopped.loader.batches == 4
    assert seen + list(resumed.run()) == undisturbed


def test_51_each_batch_has_its_samples_on_any_number_of_ranks() -> None:
    """On any number of ranks, a resumed loader yields each global batch with the same samples."""
    undisturbed, stopped = loader_of(0, 1), loader_of(0, 1)
    expected = [samples.tolist() for _ in range(2) for samples, _ in undisturbed]
    next(stopped.stream())

    ranks = [loader_of(rank, 3) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(stopped.state_dict())
    parts = [[samples.tolist() for _ in range(2) for samples, _ in rank] for rank in ranks]

    assert [list(itertools.chain(*shares)) for shares in zip(*parts, strict=True)] == expected[1:]


@needs("many processes")
@pytest.mark.parametrize(
    "victim", ["the program", *(pytest.param(rank, marks=pytest.mark.slow) for rank in ("rank 0", "rank 1"))]
)
def test_52_a_fit_goes_on_from_its_last_checkpoint(home: Home, start_script: StartScript, victim: str) -> None:
    """fit() goes on from its last checkpoint, in the same program after a worker's death or in the next start."""
    source = """
        import os, signal, sys, tempfile, time
        from core_sdk import train
        from core_sdk.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, TorchTrainer

        def function(config):
            if train.get_checkpoint() is not None:
                return 1
            with tempfile.TemporaryDirectory() as directory:
                open(os.path.join(directory, "state"), "w").close()
                train.report({"loss": 0.5}, checkpoint=Checkpoint.from_directory(directory))
            rank = train.get_context().get_world_rank()
            if config["victim"] == f"rank {rank}":
                os.kill(os.getpid(), signal.SIGKILL)
            if config["victim"] == "the program" and rank == 0:
                os.kill(config["pid"], signal.SIGKILL)
            time.sleep(60)

        run = RunConfig(job_id="job", failure_config=FailureConfig(max_failures=1))
        config = {"victim": sys.argv[1], "pid": os.getpid()}
        print(TorchTrainer(function, train_loop_config=config, scaling_config=ScalingConfig(2), run_config=run).fit())
    """

    code, _, _ = start_script(source, victim).wait()
    if victim == "the program":
        assert code == -signal.SIGKILL
        code, _, _ = start_script(source, victim).wait()

    assert code == 0
    assert home.trial_ids() == [1]
    assert len(client.get_trial(1).list_checkpoints()) == 1
    assert home.trial(1).attempts() == [1, 2]


def test_60_a_copy_deletes_nothing_of_its_original(two_checkpoints: Home, tmp_path: Path) -> None:
    """A copied home deletes nothing of its original, and has its own checkpoints; a moved one keeps its own."""
    copied = Home(shutil.copytree(two_checkpoints.root, tmp_path / "copy"))

    collect(copied, Request(policy=KEEP_NONE))
    trials.delete(copied, 1)
    moved = Home(two_checkpoints.root.rename(tmp_path / "moved"))

    assert checkpoint_ids(DirectoryStorage(copied.checkpoints)) == []
    assert checkpoint_ids(DirectoryStorage(moved.checkpoints)) == ["newer", "older"]
    with open_view(moved) as view:
        assert [row.state for row in view.checkpoints()] == ["COMPLETED", "COMPLETED"]


def test_60_only_the_same_folder_deletes_outside_and_starts_trainings(home: Home, tmp_path: Path) -> None:
    """A copied or restored home deletes nothing outside and starts no trainings until it is adopted as moved."""
    training = new_attempt(new_trial(home))
    store_recorded(training, "outside", 1, tmp_path / "shared")
    training.end()
    experiment = home.experiment(1)
    with experiment.edit() as record:
        record.search = SearchRecord(searcher="single", state="ACTIVE", home=home.identity())
    announce_master(home.root, [])
    copied = Home(shutil.copytree(home.root, tmp_path / "copy"))

    told = revive_master(copied.root)
    trials.delete(copied, 1)
    deletes_alone = read_history(home.folder(1)).checkpoints[0].is_inherited
    restored = Home(shutil.copytree(home.root, tmp_path / "restored"))

    assert "do not go on here" in told
    assert not is_master_running(copied.root)
    assert checkpoint_ids(DirectoryStorage(tmp_path / "shared")) == ["outside"] and not deletes_alone
    assert adopt(restored)
    trials.delete(restored, 1)
    assert checkpoint_ids(DirectoryStorage(tmp_path / "shared")) == []


def test_74_a_report_of_a_writer_counts_as_long_as_the_step_of_its_checkpoint(two_checkpoints: Home) -> None:
    """Reports about checkpoints are superseded with them, and the trial stays as it was, though the writer fails."""
    folder = two_checkpoints.folder(1)
    with open_view(two_checkpoints) as view:
        before = view.trial(1)
    with pytest.raises(ZeroDivisionError), core.init(trial=1, writer="evaluator") as context:
        for steps, checkpoint in enumerate(("older", "newer"), start=1):
            context.train.report_validation_metrics(steps, {"accuracy": -0.0}, checkpoint=checkpoint)
        _ = 1 / 0
    with open_view(two_checkpoints) as view:
        evaluated, trial = list(view.reports(1, rank="evaluator")), view.trial(1)
    append(folder, 2, lines(started(folder, attempt=2, resumed_steps=1)))
    with open_view(two_checkpoints) as view:
        left = list(view.reports(1, rank="evaluator"))

    assert [(row.steps_completed, str(row.metrics["accuracy"])) for row in evaluated] == [(1, "-0.0"), (2, "-0.0")]
    assert left == evaluated[:1]
    assert (trial.state, trial.num_attempts, trial.reason) == (before.state, before.num_attempts, before.reason)
    assert [(row.state, row.reason) for row in trial.writers] == [("ERROR", "ZeroDivisionError: division by zero")]


def test_75_one_living_process_writes_under_a_name(two_checkpoints: Home, start_script: StartScript) -> None:
    """A second process is refused with who has the name, and has it once the first is dead."""
    script = start_script("""
        import signal
        from core_sdk import core
        with core.init(trial=1, writer="evaluator"):
            print("writing")
            signal.pause()
        """)
    script.read_until("writing")

    with pytest.raises(WriterRefusedError, match=f"process {script.process.pid} on"):
        core.init(trial=1, writer="evaluator")
    script.process.kill()
    script.process.wait()
    core.init(trial=1, writer="evaluator").close()


def test_71_a_merge_takes_each_trial_once_though_it_is_killed(two_checkpoints: Home, tmp_path: Path) -> None:
    """A merge that was killed and repeated takes each trial once, and leaves out and names damaged checkpoints."""
    for storage_id in map(str, range(20)):
        training = new_attempt(new_trial(two_checkpoints))
        store_recorded(training, storage_id, 1)
        training.end()
    damage(two_checkpoints, "19")
    before = {path: path.read_bytes() for path in two_checkpoints.root.rglob("*") if path.is_file()}
    target = Home.create(tmp_path / "target")
    merging = subprocess.Popen(
        [sys.executable, "-m", "core_sdk._interfaces.cli", "home", "merge", str(two_checkpoints.root)],
        env=os.environ | {"CORE_SDK_HOME": str(target.root)},
    )
    wait_for(lambda: len(target.trial_ids()) > 3 or merging.poll() is not None)
    merging.kill()
    merging.wait()
    for trial_id in target.trial_ids():
        for checkpoint in read_history(target.folder(trial_id)).checkpoints:
            if checkpoint.record.storage_id != "19":
                DirectoryStorage(target.checkpoints).verify(checkpoint.record.storage_id)

    merged = merge(target, two_checkpoints)
    again = merge(target, two_checkpoints)

    assert {path: path.read_bytes() for path in before} == before
    assert len(target.trial_ids()) == len(merged.taken) + len(merged.known) == 21
    assert not again.taken and len(again.known) == 21
    assert len(checkpoint_ids(DirectoryStorage(target.checkpoints))) == 21
    assert not (target.checkpoints / "19").exists()


@pytest.mark.parametrize(
    ("saved_at", "source", "ends_at"),
    [
        ((), "a person", 7),
        ((), STOPPED_BY_SEARCHER, 7),
        ((3, 6, 8), "a person", 8),
        ((3, 6), "a person", 9),
        ((3, 6, 8), STOPPED_BY_SEARCHER, 7),
    ],
)
def test_73_a_stop_ends_a_function_that_never_asks_in_a_report(
    home: Home, tmp_path: Path, saved_at: tuple[int, ...], source: str, ends_at: int
) -> None:
    """The stop is heard before report 7; `saved_at` are the reports with a checkpoint."""

    def function() -> None:
        context = train.get_context().core_context
        for step in range(1, 20):
            if step == 7:
                home.trial(1).request_stop(1, source)
                wait_for(lambda: context.preempt.is_stop_agreed)
            checkpoint = Checkpoint.from_directory(tmp_path / "state") if step in saved_at else None
            train.report({"loss": 0.5}, checkpoint=checkpoint)

    (tmp_path / "state").mkdir()
    result = TorchTrainer(function, scaling_config=ScalingConfig(num_workers=0)).fit()

    assert result.is_stopped
    assert client.get_trial(1).steps_completed == ends_at


@needs("many processes")
def test_55_each_fit_has_workers_of_its_own(run_script: RunScript) -> None:
    """Each fit() has new worker processes, which import modules anew."""
    code, output, errors = run_script("""
        import json, os
        from core_sdk.train import ScalingConfig, TorchTrainer

        def function():
            import json
            earlier, json.earlier = getattr(json, "earlier", None), "left"
            return os.getpid(), earlier

        for _ in range(2):
            pid, earlier = TorchTrainer(function, scaling_config=ScalingConfig(2)).fit().return_value
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                print("gone", earlier)
    """)

    assert code == 0, errors
    assert output.splitlines() == ["gone None"] * 2


@pytest.mark.slow
@pytest.mark.timeout(400)
@needs("ray")
def test_56_no_worker_outlives_its_cluster(unwatched_ray: UnwatchedRay, home: Home, tmp_path: Path) -> None:
    """No worker outlives the control plane of its Ray cluster, although raylets would run on for a minute."""
    training = RayTraining(unwatched_ray, home, tmp_path)

    unwatched_ray.kill("gcs_server")

    _, output, _ = training.await_end()
    assert "was lost with its Ray cluster" in output


@needs("many processes")
def test_61_a_save_does_not_wait_for_a_rank_that_does_not_answer(home: Home, tmp_path: Path) -> None:
    """A save fails, rather than waits, if a rank does not answer because its process is stopped."""
    source = """
        from core_sdk._home.storage.directory._staging import DirectoryStaging

        seal = DirectoryStaging.seal
        def seal_when_it_goes_on(staging):
            if rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            return seal(staging)
        DirectoryStaging.seal = seal_when_it_goes_on

        with core.init(distributed=distributed) as context:
            with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
                (path / f"{rank}.bin").write_bytes(b"x")
        """
    ranks = Ranks(tmp_path)
    try:
        ended = ranks.wait(ranks.start(source, timeout_s=2)[0])
    finally:
        ranks.kill()

    assert ended.code == 1
    assert "rank 1 (" in ended.errors
    assert "does not answer: it is stopped" in ended.errors
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == []


def test_72_media_survive_what_their_report_survives(start_script: StartScript, home: Home) -> None:
    """Media survive a kill whenever their report does, and a damaged file is refused when it is read."""
    script = start_script("""
        from core_sdk import core, media

        with core.init() as context:
            for step in range(10**9):
                context.train.report_metrics("own", step, {"even": media.Text(str(step // 2)), "n": step})
                print(step, flush=True)
    """)
    script.read_until("9")

    script.process.kill()
    script.process.wait()

    found = list(client.get_trial(1).iter_media())
    assert [one.read().decode() for one in found] == [str(step // 2) for step in range(len(found))]
    assert len(found) >= 10
    directory = home.folder(1).media_path
    assert len(list(directory.glob("*.txt"))) - len({one.file.name for one in found}) in (0, 1)
    flip_a_bit(directory / found[0].file.name)
    with pytest.raises(RecordDamagedError, match=found[0].file.name):
        found[0].read()
    assert (found[2].read(), len(reports(home))) == (b"1", len(found))


def test_66_media_that_cannot_be_kept_are_refused_or_counted(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Media that are too large are refused with their report; media that no disk space is left for are counted."""
    monkeypatch.setenv("CORE_SDK_HOME", str(small_disk / "home"))
    monkeypatch.setenv("CORE_SDK_MAX_MEDIA_MB", "2")
    with warnings.catch_warnings(), pytest.raises(ReportsDroppedError) as raised:
        warnings.simplefilter("ignore")
        with core.init() as context:
            with pytest.raises(MediaTooLargeError):
                context.train.report_metrics("own", 1, {"text": media.Text("x" * 2_000_001)})
            context.train.report_metrics("own", 2, {"text": media.Text("x" * 2_000_000), "n": 1})
            context.train.report_metrics("own", 3, {"text": media.Text("x"), "n": 2})

    lost, kept = client.get_trial(1).iter_media()
    assert [report.metrics["n"] for report in reports(Home(small_disk / "home"))] == [1, 2]
    assert (lost.file.problem, kept.read(), raised.value.num_dropped) == ("No space left on device", b"x", 1)


def test_78_a_slot_is_free_when_the_processes_that_have_it_are_gone(home: Home) -> None:
    """A slot is free when the last process of its attempt is gone, and not before; none is given without a ticket."""
    train = [sys.executable, "-c", "import time; time.sleep(600)"]
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--detach", "--slots", "1", "--", *train]
    subprocess.run(command, check=True, capture_output=True)
    folder = home.trial(1)
    agent = signed_by(folder.supervised_path(1))
    assert agent is not None
    waiting = Ticket(SlotDirectory(), Path("/another/home"), 1, ["cpu-0"])
    is_refused = not waiting.held

    os.kill(agent, signal.SIGKILL)
    while not waiting.take(1, ["cpu-0"]):
        pass

    assert is_refused
    assert not is_any_marked(str(mark_of_attempt(folder, 1)))
    SlotDirectory().path.chmod(0o755)
    assert subprocess.run(command, capture_output=True).returncode == 1
    waiting.release()
