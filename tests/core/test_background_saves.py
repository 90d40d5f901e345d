"""Saves in the background: the script goes on, nothing is lost, and no failure either."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from core.held_storage import Gate, HeldStorage, hold
from core.rank_processes import Ranks, codes
from core.rank_threads import Rank, Trial
from processes import Script
from promises import promise
from saving import checkpoint_ids
from stage import stored_ids

from core_sdk import core
from core_sdk._distributed import DistributedContext
from core_sdk._ground.records import CheckpointStored, Ended, Manifest, Record, Report
from core_sdk._home import Home
from core_sdk._home.journal import JournalWriter, read_records
from core_sdk._home.storage import DirectoryStorage, Staging, Storage
from core_sdk._home.storage.directory._staging import DirectoryStaging
from core_sdk.core._checkpoint import Grace
from core_sdk.errors import CheckpointNotFoundError, CheckpointNotStoredError, JournalError, RankFailedError

TESTS = str(Path(__file__).resolve().parent.parent)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path)
    yield gate
    gate.open()


@pytest.fixture
def context(gate: Gate) -> Iterator[core.Context]:
    with core.init(name="background") as context:
        hold(context, gate)
        yield context
        gate.open()


@pytest.fixture
def checkpoint(context: core.Context) -> core.CheckpointContext:
    return context.checkpoint


def save(checkpoint: core.CheckpointContext, steps_completed: int = 1, **options: Any) -> str:
    with checkpoint.store_path({"steps_completed": steps_completed}, wait=False, **options) as (path, storage_id):
        (path / "model.bin").write_bytes(b"%d" % steps_completed)
    return storage_id


def save_in_vain(checkpoint: core.CheckpointContext, gate: Gate) -> str:
    """Starts a save in the background that fails."""
    gate.refuse()
    return save(checkpoint)


def records(home: Home) -> list[Record]:
    return list(read_records(home.runs / "1" / "1.journal"))


def outcome(home: Home) -> tuple[str, str | None]:
    last = records(home)[-1]
    assert isinstance(last, Ended)
    return last.outcome, last.error


@promise("background-save-whole")
def test_a_save_returns_before_it_is_stored(checkpoint: core.CheckpointContext, home: Home, gate: Gate) -> None:
    """A background save returns at once and is recorded when it is stored."""
    storage_id = save(checkpoint)
    gate.wait_until_reached()
    before = stored_ids(home), [type(record) for record in records(home)].count(CheckpointStored)
    gate.open()
    checkpoint.wait()

    assert before == ([], 0)
    assert stored_ids(home) == [storage_id]
    (record,) = [record for record in records(home) if isinstance(record, CheckpointStored)]
    assert record.storage_id == storage_id


def test_an_upload_returns_once_its_files_are_copied(
    checkpoint: core.CheckpointContext, home: Home, gate: Gate, tmp_path: Path
) -> None:
    """After the call returns, changes to the source directory do not reach the checkpoint."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model.bin").write_bytes(b"first")

    storage_id = checkpoint.upload(tmp_path / "source", {"steps_completed": 1}, wait=False)
    assert stored_ids(home) == []
    (tmp_path / "source" / "model.bin").write_bytes(b"second")
    gate.open()
    checkpoint.wait()

    assert (home.checkpoints / storage_id / "model.bin").read_bytes() == b"first"


def test_a_bad_upload_is_refused_at_the_call(checkpoint: core.CheckpointContext, home: Home, tmp_path: Path) -> None:
    """An upload of a missing directory raises at the call and leaves no save in flight."""
    with pytest.raises(FileNotFoundError):
        checkpoint.upload(tmp_path / "absent", {"steps_completed": 1}, wait=False)

    checkpoint.wait()
    assert stored_ids(home) == []


def test_without_a_save_there_is_nothing_to_wait_for(checkpoint: core.CheckpointContext) -> None:
    """wait() without a save returns at once."""
    checkpoint.wait()


@promise("background-save-whole")
def test_reports_flow_while_a_checkpoint_is_stored(context: core.Context, home: Home, gate: Gate) -> None:
    """Reports that are made during a background save are in the journal before the checkpoint."""
    save(context.checkpoint)
    gate.wait_until_reached()
    for step in range(100):
        context.train.report_training_metrics(step, {"loss": 1.0})
    gate.open()
    context.checkpoint.wait()

    kinds = [type(record) for record in records(home) if isinstance(record, (Report, CheckpointStored))]
    assert kinds == [Report] * 100 + [CheckpointStored]


def test_metadata_is_that_of_the_end_of_the_block(checkpoint: core.CheckpointContext, gate: Gate) -> None:
    """Changes to the metadata dict after the block do not reach the checkpoint."""
    metadata: dict[str, Any] = {"steps_completed": 1, "nested": {}}

    with checkpoint.store_path(metadata, wait=False) as (path, storage_id):
        (path / "model.bin").write_bytes(b"1")
        metadata["nested"]["loss"] = 1.0
    metadata["nested"]["loss"] = 2.0
    gate.open()

    assert checkpoint.get_metadata(storage_id) == {"steps_completed": 1, "nested": {"loss": 1.0}}


def test_metadata_spoiled_in_the_block_fails_at_its_end(checkpoint: core.CheckpointContext, home: Home) -> None:
    """Metadata that JSON cannot keep raises at the end of the block, not in a later call."""
    metadata: dict[str, Any] = {"steps_completed": 1}

    with pytest.raises(TypeError), checkpoint.store_path(metadata, wait=False):
        metadata["model"] = object()

    checkpoint.wait()
    assert stored_ids(home) == []


@promise("background-failure-raised-once")
def test_a_failure_is_raised_by_wait_once(checkpoint: core.CheckpointContext, home: Home, gate: Gate) -> None:
    """The error keeps the traceback of the place where the save failed."""
    storage_id = save_in_vain(checkpoint, gate)

    with pytest.raises(CheckpointNotStoredError, match=storage_id) as raised:
        checkpoint.wait()
    checkpoint.wait()

    assert "pass_through" in [entry.name for entry in raised.traceback]
    assert stored_ids(home) == []
    assert list((home.checkpoints / ".staging").iterdir()) == []


def store_another(checkpoint: core.CheckpointContext, directory: Path, **options: Any) -> None:
    with checkpoint.store_path({"steps_completed": 2}, **options):
        raise AssertionError("the block was entered")


def upload_another(checkpoint: core.CheckpointContext, directory: Path, **options: Any) -> None:
    checkpoint.upload(directory, {"steps_completed": 2}, **options)


@promise("background-failure-raised-once")
@pytest.mark.parametrize("call", [store_another, upload_another])
@pytest.mark.parametrize("options", [{}, {"wait": False}, {"shard": True}, {"shard": True, "wait": False}], ids=str)
def test_the_next_save_raises_the_failure(
    checkpoint: core.CheckpointContext,
    gate: Gate,
    tmp_path: Path,
    call: Callable[..., None],
    options: dict[str, Any],
) -> None:
    """The next save raises the failure of the previous one before it writes anything."""
    storage_id = save_in_vain(checkpoint, gate)

    with pytest.raises(CheckpointNotStoredError, match=storage_id):
        call(checkpoint, tmp_path, **options)


USES: list[Callable[[core.CheckpointContext, str, Path], object]] = [
    lambda checkpoint, storage_id, path: checkpoint.get_metadata(storage_id),
    lambda checkpoint, storage_id, path: checkpoint.delete(storage_id),
    lambda checkpoint, storage_id, path: checkpoint.download(storage_id, path),
    lambda checkpoint, storage_id, path: checkpoint.download(storage_id, path, core.DownloadMode.NoSharedDownload),
    lambda checkpoint, storage_id, path: checkpoint.restore_path(storage_id).__enter__(),
    lambda checkpoint, storage_id, path: checkpoint.restore_path(
        storage_id, core.DownloadMode.NoSharedDownload
    ).__enter__(),
]


@pytest.mark.parametrize("use", USES)
def test_whoever_uses_a_checkpoint_waits_for_it(
    checkpoint: core.CheckpointContext,
    gate: Gate,
    tmp_path: Path,
    use: Callable[[core.CheckpointContext, str, Path], object],
) -> None:
    """Using a checkpoint waits until it is stored or raises its failure; other checkpoints do not wait."""
    first = save(checkpoint)
    gate.wait_until_reached()
    with pytest.raises(CheckpointNotFoundError):
        use(checkpoint, "00000000-0000-4000-8000-000000000000", tmp_path / "other")
    gate.open()
    use(checkpoint, first, tmp_path / "first")
    second = save_in_vain(checkpoint, gate)

    with pytest.raises(CheckpointNotStoredError, match=second):
        use(checkpoint, second, tmp_path / "second")


def test_saves_come_one_after_the_other(checkpoint: core.CheckpointContext, home: Home, gate: Gate) -> None:
    """A second save waits until the first one is stored."""
    first = save(checkpoint, 1)
    gate.wait_until_reached()
    opener = threading.Timer(0.1, gate.open)
    opener.start()
    second = save(checkpoint, 2)
    was_first_stored = first in stored_ids(home)
    checkpoint.wait()

    assert was_first_stored
    assert sorted([first, second]) == stored_ids(home)


def test_leaving_waits(home: Home, gate: Gate) -> None:
    """Leaving the Context waits for the save, so that the end is recorded after the checkpoint."""
    with core.init() as context:
        hold(context, gate)
        save(context.checkpoint)
        threading.Timer(0.1, gate.open).start()

    assert [type(record) for record in records(home)][-2:] == [CheckpointStored, Ended]
    assert outcome(home) == ("completed", None)


@promise("background-failure-raised-once")
@pytest.mark.parametrize("end", [lambda: None, lambda: exec("raise SystemExit(0)")], ids=["end", "sys.exit"])
def test_leaving_well_raises_the_failure(home: Home, gate: Gate, end: Callable[[], None]) -> None:
    """Leaving the Context raises the failure of a save, and the attempt ends with that error."""
    with pytest.raises(CheckpointNotStoredError), core.init() as context:
        hold(context, gate)
        save_in_vain(context.checkpoint, gate)
        end()

    kind, error = outcome(home)
    assert kind == "error"
    assert error is not None and "it was refused" in error


def test_leaving_with_an_error_logs_the_failure(home: Home, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """When a script's error ends the Context, that error is raised and recorded, and the save's failure is logged."""
    with pytest.raises(ZeroDivisionError), core.init() as context:
        hold(context, gate)
        save_in_vain(context.checkpoint, gate)
        raise ZeroDivisionError

    kind, error = outcome(home)
    assert (kind, error is not None and "it was refused" in error) == ("error", False)
    assert "it was refused" in caplog.text


PRELUDE = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {TESTS!r})
from pathlib import Path
from core.held_storage import Gate, hold
from core_sdk import core
gate = Gate(Path("."))
def save(context, step, **options):
    with context.checkpoint.store_path({{"steps_completed": step}}, wait=False, **options) as (path, storage_id):
        (path / "model.bin").write_bytes(b"x" * 1000)
    return storage_id
"""


def test_a_forgotten_context_waits_too(home: Home, run_script: Callable[..., tuple[int, str, str]]) -> None:
    """A Context that is never closed waits for its save when the interpreter exits."""
    source = """
context = core.init()
context.start()
hold(context, gate)
print(save(context, 1))
threading.Timer(0.3, gate.open).start()
"""
    status, output, errors = run_script(PRELUDE + source)

    assert (status, errors) == (0, "")
    assert stored_ids(home) == [output.strip()]
    assert outcome(home) == ("exited", None)


def test_a_python_that_cannot_wait_at_its_end_saves_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`threading._register_atexit` is a private name of Python's, and the only one of its kind."""
    assert callable(threading._register_atexit)  # type: ignore[attr-defined]
    monkeypatch.delattr(threading, "_register_atexit")

    with core.init() as context:
        with context.checkpoint.store_path({"steps_completed": 1}, wait=False) as (path, storage_id):
            (path / "model.bin").write_bytes(b"x")
        stored = stored_ids(home)

    assert stored == [storage_id]
    assert "wait=False is not heeded" in caplog.text


def test_an_interrupted_wait_can_be_repeated(home: Home, start_script: Callable[..., Script], gate: Gate) -> None:
    """Ctrl-C during wait() leaves the save running, and a later wait stores it."""
    source = """
with core.init() as context:
    hold(context, gate)
    save(context, 1)
    try:
        print("waiting")
        context.checkpoint.wait()
    except KeyboardInterrupt:
        print("interrupted")
    context.checkpoint.wait()
"""
    script = start_script(PRELUDE + source)
    script.read_until("waiting")
    gate.wait_until_reached()
    script.process.send_signal(signal.SIGINT)
    script.read_until("interrupted")
    gate.open()

    assert script.wait()[0] == 0
    assert len(stored_ids(home)) == 1
    assert outcome(home) == ("completed", None)


def test_an_interrupted_leaving_gives_the_save_up(home: Home, run_script: Callable[..., tuple[int, str, str]]) -> None:
    """Ctrl-C while the Context waits at its end drops the save, and the attempt is canceled."""
    source = """
def interrupt_the_wait():
    main = threading.main_thread().ident
    names = set()
    while "is_over" not in names:
        frame, names = sys._current_frames()[main], set()
        while frame is not None:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

with core.init() as context:
    hold(context, gate)
    save(context, 1)
    threading.Thread(target=interrupt_the_wait, daemon=True).start()
"""
    status, _, _ = run_script(PRELUDE + source)

    assert status == -signal.SIGINT
    assert stored_ids(home) == []
    assert list((home.checkpoints / ".staging").iterdir()) == []
    assert outcome(home)[0] == "canceled"


def test_what_is_written_later_is_part_of_the_checkpoint(
    checkpoint: core.CheckpointContext, home: Home, gate: Gate, tmp_path: Path
) -> None:
    """A background thread writes the files of `write_later` while the script goes on."""
    threads = []
    written = Gate(tmp_path, "written")

    def write(path: Path) -> None:
        threads.append(threading.current_thread())
        written.pass_through("")
        (path / "later.bin").write_bytes(b"later")

    gate.open()
    storage_id = save(checkpoint, write_later=write)
    written.wait_until_reached()
    assert not any(home.checkpoints.glob("*/later.bin"))
    written.open()

    with checkpoint.restore_path(storage_id) as path:
        assert sorted(each.name for each in path.glob("*.bin")) == ["later.bin", "model.bin"]
    assert threads != [threading.current_thread()]


def test_what_is_written_later_without_waiting_is_written_at_once(
    checkpoint: core.CheckpointContext, gate: Gate
) -> None:
    """In a save that waits, `write_later` runs in the script's thread, after the block."""
    gate.open()
    order = []

    with checkpoint.store_path({"steps_completed": 1}, write_later=lambda path: order.append("later")) as (path, _):
        (path / "model.bin").write_bytes(b"1")
        order.append("block")

    assert order == ["block", "later"]


def test_a_failure_of_what_is_written_later_fails_the_save(
    checkpoint: core.CheckpointContext, home: Home, gate: Gate
) -> None:
    """An error in `write_later` is raised once by wait(), and nothing of the save is left."""

    def fail(path: Path) -> None:
        raise ZeroDivisionError

    save(checkpoint, write_later=fail)

    with pytest.raises(ZeroDivisionError):
        checkpoint.wait()
    checkpoint.wait()
    assert stored_ids(home) == []
    assert list((home.checkpoints / ".staging").iterdir()) == []


def test_a_failure_of_what_one_rank_writes_later_fails_the_save_on_all(tmp_path: Path) -> None:
    """An error in `write_later` on one rank fails the save on all, and the others learn which rank it was."""
    trial = Trial(tmp_path / "trial", 2)

    def script(rank: Rank) -> BaseException:
        def write(path: Path) -> None:
            (path / f"{rank.number}.bin").write_bytes(b"1")
            if rank.number == 1:
                raise ZeroDivisionError

        with rank.checkpoint.store_path({"steps_completed": 1}, shard=True, wait=False, write_later=write):
            pass
        with pytest.raises((ZeroDivisionError, RankFailedError)) as raised:
            rank.checkpoint.wait()
        return raised.value

    failures = trial.run(script)

    assert [type(failure) for failure in failures] == [RankFailedError, ZeroDivisionError]
    assert trial.left_over() == []


@promise("dead-saves-swept")
@pytest.mark.parametrize("step", ["write", "seal", "contribute", "commit"])
def test_a_kill_leaves_the_checkpoint_before(
    home: Home, start_script: Callable[..., Script], gate: Gate, step: str
) -> None:
    """A kill in any step of a save leaves the earlier checkpoint valid, and the next init() removes the rest."""
    source = f"""
def write(path):
    (path / "half.bin").write_bytes(b"half")
    gate.pass_through("")

context = core.init()
context.start()
print(save(context, 1))
context.checkpoint.wait()
hold(context, gate, {step!r})
save(context, 2, write_later=write if {step!r} == "write" else None)
print("saving")
threading.Event().wait()
"""
    script = start_script(PRELUDE + source)
    assert script.process.stdout is not None
    first = script.process.stdout.readline().strip()
    script.read_until("saving")
    gate.wait_until_reached()
    script.process.kill()
    script.wait()

    storage = DirectoryStorage(home.checkpoints)
    assert checkpoint_ids(storage) == [first]
    storage.verify(first)
    with core.init():
        pass
    assert list((home.checkpoints / ".staging").iterdir()) == []


def test_a_forked_child_waits_for_nothing(checkpoint: core.CheckpointContext, home: Home, gate: Gate) -> None:
    """Waiting and closing in a forked child return at once, since the save belongs to the parent."""
    save(checkpoint)
    gate.wait_until_reached()

    child = os.fork()
    if child == 0:
        checkpoint.wait()
        checkpoint.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    gate.open()
    checkpoint.wait()

    assert status == 0
    assert len(stored_ids(home)) == 1


def test_a_child_forked_in_the_block_begins_no_save(checkpoint: core.CheckpointContext, home: Home, gate: Gate) -> None:
    """A forked child is refused a save, since it would store files that the parent is still writing."""
    gate.open()
    block = checkpoint.store_path({"steps_completed": 1}, wait=False)
    path, storage_id = block.__enter__()
    child = os.fork()
    if child == 0:
        try:
            block.__exit__(None, None, None)
        except JournalError:
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    (path / "model.bin").write_bytes(b"1")
    block.__exit__(None, None, None)
    checkpoint.wait()

    assert status == 0
    assert stored_ids(home) == [storage_id]


def test_the_background_gives_way_to_the_training(checkpoint: core.CheckpointContext, gate: Gate) -> None:
    """The thread that saves in the background has a lower priority than the training thread."""
    save(checkpoint)
    gate.wait_until_reached()

    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert os.getpriority(os.PRIO_PROCESS, gate.thread_id) > own or own == 19


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="NOT TESTED: priorities of threads, which Linux has")
def test_the_last_save_does_not_stand_back(gate: Gate) -> None:
    """After a stop the save runs at normal priority: there is no training to disturb and time is short."""
    with core.init(deadline=0) as context:
        hold(context, gate)
        while not context.preempt.should_preempt():
            pass
        save(context.checkpoint)
        gate.wait_until_reached()

        own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        assert os.getpriority(os.PRIO_PROCESS, gate.thread_id) == own
        gate.open()


def a_context(folder: Path, gate: Gate, grace: Grace) -> core.CheckpointContext:
    journal = JournalWriter(folder / "1.journal")
    return core.CheckpointContext(HeldStorage(folder / "checkpoints", gate), DistributedContext(), journal, grace)


@pytest.mark.parametrize("wait", [True, False])
def test_the_first_save_is_measured_and_held_against_the_grace(
    tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture, wait: bool
) -> None:
    """One warning names the duration of the first save and the grace that it exceeds."""
    checkpoint = a_context(tmp_path, gate, Grace(0.001, lambda: None))
    gate.open()
    before = checkpoint.first_save_duration_s

    for step in range(2):
        with checkpoint.store_path({"steps_completed": step}, wait=wait) as (path, _):
            (path / "model.bin").write_bytes(b"weights")
            time.sleep(0.001)
        checkpoint.wait()

    first = checkpoint.first_save_duration_s
    assert before is None
    assert first is not None
    assert first > 0.001
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{first:.1f} s" in warning.getMessage()
    assert "0.001 s" in warning.getMessage() and "CORE_SDK_GRACE_S" in warning.getMessage()
    checkpoint._journal.close()


@pytest.mark.parametrize("total_s", [None, 60.0])
def test_a_grace_that_suffices_is_not_spoken_of(
    tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture, total_s: float | None
) -> None:
    """There is no warning when the grace suffices or is unknown."""
    checkpoint = a_context(tmp_path, gate, Grace(total_s, lambda: None))
    gate.open()
    save(checkpoint)
    checkpoint.close()
    checkpoint._journal.close()

    assert caplog.records == []


STOPPED = """
with core.init() as context:
    hold(context, gate)
    context.preempt.should_preempt()
    print("listening")
    while not context.preempt.should_preempt():
        pass
    save(context, 1)
    print("leaving")
"""


@promise("background-save-in-grace")
def test_a_stop_waits_for_the_save_within_its_grace(
    home: Home, start_script: Callable[..., Script], gate: Gate
) -> None:
    """A save that ends within the grace is stored, and the trial is paused."""
    script = start_script(PRELUDE + STOPPED, CORE_SDK_GRACE_S="60")
    script.read_until("listening")
    script.process.send_signal(signal.SIGTERM)
    script.read_until("leaving")
    gate.wait_until_reached()
    gate.open()

    assert script.wait()[0] == 0
    assert len(stored_ids(home)) == 1
    assert outcome(home) == ("paused", None)


@promise("background-save-in-grace")
def test_a_save_beyond_the_grace_is_given_up(home: Home, start_script: Callable[..., Script], gate: Gate) -> None:
    """A save that exceeds the grace is dropped with an error that names its duration and CORE_SDK_GRACE_S."""
    script = start_script(PRELUDE + STOPPED, CORE_SDK_GRACE_S="0.5")
    script.read_until("listening")
    script.process.send_signal(signal.SIGTERM)
    status, _, errors = script.wait()

    assert status == 1
    assert "GraceExceededError" in errors and "0.5 s" in errors and "CORE_SDK_GRACE_S" in errors
    assert stored_ids(home) == []
    assert list((home.checkpoints / ".staging").iterdir()) == []
    assert outcome(home)[0] == "error"


def test_a_save_that_ends_as_it_is_given_up_is_stored(tmp_path: Path, gate: Gate) -> None:
    """A save that can no longer be interrupted is stored, although its grace is over."""
    gate.cuts_short = False
    checkpoint = a_context(tmp_path, gate, Grace(0.0, time.monotonic))
    storage_id = save(checkpoint)
    checkpoint.close()
    checkpoint._journal.close()

    assert checkpoint_ids(DirectoryStorage(tmp_path / "checkpoints")) == [storage_id]


def test_without_a_known_grace_a_stop_waits_for_as_long_as_it_takes(
    home: Home, start_script: Callable[..., Script], gate: Gate
) -> None:
    """Without a known grace, a stop waits for the save as long as it takes."""
    script = start_script(PRELUDE + STOPPED)
    script.read_until("listening")
    script.process.send_signal(signal.SIGTERM)
    script.read_until("leaving")
    gate.wait_until_reached()
    time.sleep(0.3)
    assert script.process.poll() is None
    gate.open()

    assert script.wait()[0] == 0
    assert outcome(home) == ("paused", None)


class _Disturbed(DirectoryStaging):
    """A staging area in which a file is written after the checksums are known."""

    late_file = "model.bin"

    def commit(self, *arguments: Any) -> Manifest:
        (self.path / self.late_file).write_bytes(b"second, and longer")
        return super().commit(*arguments)


class _DisturbedByAnother(_Disturbed):
    late_file = "late.bin"


class DisturbedStorage(DirectoryStorage):
    def __init__(self, root: Path, kind: type[DirectoryStaging]) -> None:
        super().__init__(root)
        self._kind = kind

    def stage(self, storage_id: str, *, is_shared: bool = False) -> Staging:
        return self._kind(self.root, self._area.new_directory(), storage_id)


@pytest.mark.parametrize("kind", [_Disturbed, _DisturbedByAnother])
@pytest.mark.parametrize("wait", [True, False])
def test_writing_after_the_block_refuses_the_save(tmp_path: Path, kind: type[_Disturbed], wait: bool) -> None:
    """A file that changes after the block fails the save now, not a verification much later."""
    storage = DisturbedStorage(tmp_path / "checkpoints", kind)
    with contextlib.closing(JournalWriter(tmp_path / "1.journal")) as journal:
        checkpoint = core.CheckpointContext(storage, DistributedContext(), journal)
        with pytest.raises(CheckpointNotStoredError, match=f"'{kind.late_file}' changed while it was being stored"):
            with checkpoint.store_path({"steps_completed": 1}, wait=wait) as (path, _):
                (path / "model.bin").write_bytes(b"first")
            checkpoint.wait()

    assert checkpoint_ids(storage) == []


class HeldTrial(Trial):
    """A trial in which some ranks wait at a step of a save."""

    def __init__(self, folder: Path, num_ranks: int, step: str = "commit", held: tuple[int, ...] = (0,)) -> None:
        super().__init__(folder, num_ranks)
        self._step = step
        self._held = held
        self.gates = [Gate(folder, str(rank)) for rank in range(num_ranks)]

    def open_storage(self, rank: int) -> Storage:
        if rank not in self._held:
            return super().open_storage(rank)
        return HeldStorage(self.storage.root, self.gates[rank], self._step)


def save_shard(rank: Rank, steps_completed: int = 1) -> str:
    metadata = {"steps_completed": steps_completed}
    with rank.checkpoint.store_path(metadata, shard=True, wait=False) as (path, storage_id):
        (path / f"{rank.number}.bin").write_bytes(b"%d" % rank.number)
    return storage_id


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("step", ["seal", "contribute", "commit"])
def test_ranks_go_on_while_they_store_together(tmp_path: Path, num_ranks: int, step: str) -> None:
    """Ranks make collective calls while their common checkpoint is stored."""
    trial = HeldTrial(tmp_path / "trial", num_ranks, step)

    def script(rank: Rank) -> str:
        storage_id = save_shard(rank)
        for number in range(20):
            assert rank.distributed.allgather((rank.number, number)) == [(r, number) for r in range(num_ranks)]
        trial.gates[0].wait_until_reached()
        assert checkpoint_ids(trial.storage) == []
        rank.distributed.allgather("looked")
        trial.gates[0].open()
        second = save_shard(rank, 2)
        rank.checkpoint.wait()
        assert second in checkpoint_ids(trial.storage)
        return storage_id

    ids = trial.run(script)

    assert len(set(ids)) == 1
    assert set(trial.storage.verify(ids[0]).resources) == {"metadata.json", *(f"{r}.bin" for r in range(num_ranks))}
    assert len([r for r in trial.records(0) if isinstance(r, CheckpointStored)]) == 2
    assert trial.left_over() == []


def test_ranks_upload_in_the_background(tmp_path: Path) -> None:
    """A sharded upload in the background lets the ranks go on and stores the same checkpoint."""
    trial = HeldTrial(tmp_path / "trial", 2)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model.bin").write_bytes(b"1")

    def script(rank: Rank) -> str:
        storage_id = rank.checkpoint.upload(tmp_path / "source", {"steps_completed": 1}, shard=True, wait=False)
        rank.distributed.allgather("went on")
        trial.gates[0].open()
        rank.checkpoint.wait()
        return storage_id

    storage_id = trial.run(script)[0]

    assert set(trial.storage.verify(storage_id).resources) == {"metadata.json", "model.bin"}


def test_what_fails_on_one_rank_comes_out_on_all(tmp_path: Path) -> None:
    """A failure on one rank is raised by `wait()` on all ranks, which stay in step."""
    trial = HeldTrial(tmp_path / "trial", 3, "contribute", held=(1,))

    def script(rank: Rank) -> BaseException:
        save_shard(rank)
        trial.gates[1].refuse()
        with pytest.raises((CheckpointNotStoredError, RankFailedError)) as raised:
            rank.checkpoint.wait()
        rank.checkpoint.wait()
        rank.distributed.allgather("in step")
        return raised.value

    failures = trial.run(script)

    assert isinstance(failures[1], CheckpointNotStoredError)
    for number in (0, 2):
        assert isinstance(failure := failures[number], RankFailedError)
        assert failure.rank == 1
    assert checkpoint_ids(trial.storage) == []
    assert trial.left_over() == []


def test_the_next_save_of_all_raises_the_failure_on_all(tmp_path: Path) -> None:
    """The next sharded save raises an earlier failure on all ranks, even if only the chief was saving."""
    trial = HeldTrial(tmp_path / "trial", 2)

    def script(rank: Rank) -> BaseException:
        trial.gates[0].refuse()
        if rank.number == 0:
            save(rank.checkpoint)
        with pytest.raises((CheckpointNotStoredError, RankFailedError)) as raised:
            save_shard(rank)
        rank.distributed.allgather("in step")
        return raised.value

    failures = trial.run(script)

    assert isinstance(failures[0], CheckpointNotStoredError)
    assert isinstance(failures[1], RankFailedError)


def test_a_block_that_raises_on_one_rank_fails_the_others_later(tmp_path: Path) -> None:
    """An error in one rank's block fails the save of ranks that have left their blocks already."""
    trial = HeldTrial(tmp_path / "trial", 2)

    def script(rank: Rank) -> None:
        if rank.number == 0:
            save_shard(rank)
            rank.distributed.allgather("gone on")
            rank.checkpoint.wait()
            return
        try:
            with rank.checkpoint.store_path({"steps_completed": 1}, shard=True, wait=False):
                raise ZeroDivisionError
        finally:
            rank.distributed.allgather("gone on")

    errors = trial.attempt(script).errors

    assert isinstance(errors[1], ZeroDivisionError)
    assert isinstance(error := errors[0], RankFailedError)
    assert (error.rank, "ZeroDivisionError" in error.error_text) == (1, True)
    assert trial.left_over() == []


def test_ranks_that_do_not_agree_on_waiting_are_told(tmp_path: Path) -> None:
    """Ranks that give different values of `wait` are refused before anything is written."""
    trial = HeldTrial(tmp_path / "trial", 2)

    def script(rank: Rank) -> None:
        store_another(rank.checkpoint, tmp_path, shard=True, wait=rank.number == 0)

    errors = trial.attempt(script).errors

    assert all("with different wait: True on rank 0, False on rank 1" in str(errors[rank]) for rank in range(2))


def test_ranks_that_share_a_restore_wait_for_it_together(tmp_path: Path) -> None:
    """Ranks that restore together wait for a save in the background, even if only the chief makes it."""
    trial = HeldTrial(tmp_path / "trial", 2)

    def script(rank: Rank) -> dict[str, Any]:
        storage_id = rank.distributed.broadcast(save(rank.checkpoint) if rank.number == 0 else "")
        if rank.number == 0:
            threading.Timer(0.1, trial.gates[0].open).start()
        with rank.checkpoint.restore_path(storage_id) as path:
            assert (path / "model.bin").exists()
        return rank.checkpoint.get_metadata(storage_id)

    assert trial.run(script) == [{"steps_completed": 1}] * 2


def test_writing_after_the_block_refuses_the_save_of_all_ranks(tmp_path: Path) -> None:
    """A file that changes before all ranks are ready fails the save on every rank."""
    trial = HeldTrial(tmp_path / "trial", 2, "contribute")

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 1}, shard=True, wait=False) as (path, _):
            (path / f"{rank.number}.bin").write_bytes(b"first")
        if rank.number == 0:
            trial.gates[0].wait_until_reached()
            (path / "0.bin").write_bytes(b"second, and longer")
            trial.gates[0].open()
        rank.checkpoint.wait()

    errors = trial.attempt(script).errors

    assert isinstance(errors[0], CheckpointNotStoredError)
    assert "'0.bin' changed while it was being stored" in str(errors[0])
    assert isinstance(errors[1], RankFailedError)
    assert checkpoint_ids(trial.storage) == []


class ImpatientTrial(HeldTrial):
    """A trial whose collective calls time out after a moment."""

    def _join(self, number: int, folder: Path) -> DistributedContext:
        distributed = super()._join(number, folder)
        distributed.channel.timeout_s = 0.2
        return distributed


@pytest.mark.parametrize(
    ("held", "step"), [(0, "seal"), (0, "contribute"), (0, "commit"), (1, "seal"), (1, "contribute")]
)
def test_a_rank_may_send_for_longer_than_the_others_wait_otherwise(tmp_path: Path, step: str, held: int) -> None:
    """A rank that is still storing is not timed out, in the foreground either."""
    trial = ImpatientTrial(tmp_path / "trial", 2, step, held=(held,))

    def script(rank: Rank) -> str:
        if rank.number == held:
            threading.Timer(0.5, trial.gates[held].open).start()
        with rank.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, storage_id):
            (path / f"{rank.number}.bin").write_bytes(b"1")
        return storage_id

    storage_id = trial.run(script)[0]

    assert checkpoint_ids(trial.storage) == [storage_id]


RANKS = f"""
sys.path.insert(0, {TESTS!r})
import threading
from core.held_storage import Gate, hold
gate = Gate(Path("."), f"gate{{rank}}")
def save(context, step):
    with context.checkpoint.store_path({{"steps_completed": step}}, shard=True, wait=False) as (path, storage_id):
        (path / f"{{rank}}.bin").write_bytes(b"x")
    return storage_id
"""


def test_processes_store_together_in_the_background(ranks: Ranks, home: Home) -> None:
    """Ranks on two nodes store together in the background, and leaving the Context waits for it."""
    source = """
with core.init(distributed=distributed) as context:
    for step in range(3):
        save(context, step)
        assert distributed.allgather(rank) == [0, 1]
"""
    variables = {rank: {"CORE_SDK_CHANNEL_KEY": "0123456789abcdef"} for rank in range(2)}
    ended = ranks.run(RANKS + source, num_nodes=2, variables=variables)

    assert codes(ended) == [0, 0], ended
    assert len(stored_ids(home)) == 3
    assert outcome(home) == ("completed", None)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_meanwhile_fails_the_save_of_the_others(
    ranks: Ranks, home: Home, tmp_path: Path, victim: int
) -> None:
    """When a rank dies during a save, the others learn which one, and nothing is stored."""
    source = f"""
context = core.init(distributed=distributed)
context.start()
if rank == {victim}:
    hold(context, gate, "contribute")
save(context, 1)
if rank == {victim}:
    gate.wait_until_reached()
    os.kill(os.getpid(), signal.SIGKILL)
try:
    context.checkpoint.wait()
except RankDiedError as error:
    print(f"rank {{error.rank}} died")
"""
    ended = ranks.run(RANKS + source)

    assert ended[1 - victim].output == f"rank {victim} died\n", ended
    assert ended[victim].code == -signal.SIGKILL
    assert stored_ids(home) == []


def test_a_rank_that_ends_with_an_error_lets_the_save_succeed(ranks: Ranks, home: Home) -> None:
    """A rank that fails during a save finishes storing it before the others learn of its error."""
    source = """
with core.init(distributed=distributed) as context:
    save(context, 1)
    if rank == 1:
        raise ZeroDivisionError
    distributed.allgather("never")
"""
    ended = ranks.run(RANKS + source)

    assert codes(ended) == [1, 1]
    assert "ZeroDivisionError" in ended[0].errors
    assert len(stored_ids(home)) == 1
    assert outcome(home)[0] == "error"
