"""A script may close any descriptor, and open a file of its own under the number: that file is left alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import wait_for

from core_sdk._distributed.calls._wakeup_pipe import WakeupPipe
from core_sdk._distributed.transport._connection import Connection
from core_sdk._distributed.transport._frames import ConnectionEndedError
from core_sdk._execution.workers._output import ShownOutput
from core_sdk._ground.alive import AliveLock, is_alive
from core_sdk._ground.descriptors import KeptDescriptor, moved_up_socket
from core_sdk._ground.records import AttemptStarted, Dropped, Report
from core_sdk._home.journal import JournalWriter, RankJournal, read_records
from core_sdk._machine.processes import Guardian
from core_sdk._machine.processes.output import Outlet, PrefixedLines, RankOutput
from core_sdk.errors import ReportsDroppedError

STARTED = AttemptStarted(time=1.0, format=1, trial_id=1, attempt=1, host="a", pid=1, sdk_version="1", rank=1)
CONTENT = b"the script's own words\n"

Use = Callable[[], object]
"""Does, once and again, what the owner of the descriptor does with it while the training runs."""
Kept = Callable[[Path], contextlib.AbstractContextManager[Use]]


def report(step: int) -> Report:
    return Report(1.0, "training", step, {"loss": 1.0})


@contextlib.contextmanager
def journal(directory: Path) -> Iterator[Use]:
    writer = JournalWriter(directory / "1.journal", fsync_interval_s=0.01)
    yield lambda: writer.append_or_raise(report(1))
    writer.close()


@contextlib.contextmanager
def rank_journal(directory: Path) -> Iterator[Use]:
    writer = RankJournal(directory / "1.rank1.journal", STARTED, is_kept=True)
    writer.append(report(1))
    yield lambda: writer.keep_file("media/a.txt", b"a")
    writer.close()


@contextlib.contextmanager
def alive_lock(directory: Path) -> Iterator[Use]:
    lock = AliveLock(directory / "alive")
    yield lock.sign
    lock.release()


@contextlib.contextmanager
def wakeup_pipe(_: Path) -> Iterator[Use]:
    pipe = WakeupPipe()

    def use() -> None:
        pipe.wake()
        pipe.forget()

    yield use
    pipe.close()


@contextlib.contextmanager
def connection(_: Path) -> Iterator[Use]:
    own, theirs = socket.socketpair()
    member = Connection(moved_up_socket(own), None)

    def use() -> None:
        member.receive_nowait()
        member.send_message(b"message", 0.0)

    with theirs:
        yield use
        member.end_sending()
        member.close()


@contextlib.contextmanager
def guardian(directory: Path) -> Iterator[Use]:
    with (directory / "held").open("w") as held:
        kept = Guardian(None, f"MARK={directory}", held=[held.fileno()])
    yield lambda: kept.release(1 << 22)
    kept.dismiss()


@contextlib.contextmanager
def outlet(directory: Path) -> Iterator[Use]:
    with (directory / "output").open("wb") as file:
        sink = Outlet(file.fileno(), threading.Event())
    yield lambda: sink.write(b"line\n")
    sink.close()


@contextlib.contextmanager
def rank_output(directory: Path) -> Iterator[Use]:
    with (directory / "shown").open("wb") as file, RankOutput(directory, file.fileno(), file.fileno()) as output:
        output.open(0)
        output.wait_for_end(0, 0.01)
        yield lambda: output.say("words")


@contextlib.contextmanager
def worker_log(directory: Path) -> Iterator[Use]:
    shown = ShownOutput(directory / "log")
    yield lambda: shown.stdout.write(b"line\n", PrefixedLines(b""))
    shown.close()


KEPT: list[Kept] = [
    journal,
    rank_journal,
    alive_lock,
    wakeup_pipe,
    connection,
    guardian,
    outlet,
    rank_output,
    worker_log,
]


def descriptors() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("is_replaced", [False, True], ids=["closed", "replaced"])
@pytest.mark.parametrize("kept", KEPT)
def test_a_file_of_the_script_s_is_left_alone(tmp_path: Path, kept: Kept, is_replaced: bool) -> None:
    """A script's file that reuses one of our descriptor numbers is not touched."""
    own = tmp_path / "own"
    own.write_bytes(CONTENT)
    (tmp_path / "ours").mkdir()

    with contextlib.suppress(OSError, ReportsDroppedError), contextlib.ExitStack() as stack:
        before = descriptors()
        use = stack.enter_context(kept(tmp_path / "ours"))
        numbers = {number for number in descriptors() - before if number >= 500}
        file = os.open(own, os.O_RDWR)
        for number in numbers:
            os.dup2(file, number) if is_replaced else os.close(number)
        for _ in range(3):
            with contextlib.suppress(OSError, ConnectionEndedError):
                use()
        if os.fork() == 0:
            os._exit(0 if not is_replaced or all(map(is_open, numbers)) else 1)
        _, status = os.wait()

    assert numbers
    assert status == 0
    assert own.read_bytes() == CONTENT
    assert os.lseek(file, 0, os.SEEK_CUR) == 0
    with own.open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if is_replaced:
        assert all(map(is_open, numbers))
        for number in numbers:
            os.close(number)
    os.close(file)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_descriptors_stand_higher_than_what_makes_a_daemon_closes(tmp_path: Path) -> None:
    """Our descriptors are above 256, which usual daemon recipes do not close."""
    kept = KeptDescriptor(os.open(tmp_path, os.O_RDONLY))

    assert 256 < kept.fileno() < 1024
    kept.close()


def test_a_journal_whose_descriptor_was_closed_loses_nothing(tmp_path: Path) -> None:
    """If a journal's descriptor is closed, the journal is opened again and loses nothing."""
    writer = JournalWriter(tmp_path / "1.journal")
    writer.append(report(1))

    os.close(writer._descriptor)
    for step in range(2, 100):
        writer.append(report(step))
    writer.close()

    assert list(read_records(tmp_path / "1.journal")) == [report(step) for step in range(1, 100)]


def test_records_in_a_file_of_the_script_s_are_counted(tmp_path: Path) -> None:
    """If a script's file replaces a journal's descriptor, the lost records are counted exactly."""
    writer = JournalWriter(tmp_path / "1.journal", fsync_interval_s=0.05)
    writer.append(report(1))
    with warnings.catch_warnings(), (tmp_path / "own").open("wb") as own:
        warnings.simplefilter("ignore")

        os.dup2(own.fileno(), writer._descriptor)
        number = writer._descriptor
        for step in range(2, 12):
            writer.append(report(step))
        wait_for(lambda: writer._descriptor != number)
        writer.append(report(12))
        with pytest.raises(ReportsDroppedError) as raised:
            writer.close()
        os.close(number)

    num_lost = len((tmp_path / "own").read_bytes().splitlines())
    records = list(read_records(tmp_path / "1.journal"))
    assert 0 < raised.value.num_dropped == num_lost <= 10
    assert [record.count for record in records if isinstance(record, Dropped)] == [num_lost]
    assert len([record for record in records if isinstance(record, Report)]) == 12 - num_lost


def test_a_script_that_closes_its_lock_still_counts_as_running(tmp_path: Path) -> None:
    """The thread that looks after the journal takes it again within a second."""
    with contextlib.closing(JournalWriter(tmp_path / "1.journal", fsync_interval_s=0.01)) as writer:
        writer.alive = AliveLock(tmp_path / "1.alive")

        os.close(writer.alive.fileno())

        wait_for(lambda: is_alive(tmp_path / "1.alive"))
        writer.alive.release()
