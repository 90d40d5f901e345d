"""The journal keeps what it was told, through torn tails, bad lines, full disks, forks and threads."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from parts import needs, strace
from processes import wait_for
from promises import promise

from core_sdk._ground.alive import AliveLock, is_alive
from core_sdk._ground.records import Dropped, ProgressReported, Record, Report
from core_sdk._home.journal import JournalWriter, read_journal, read_records
from core_sdk.errors import JournalError, ReportsDroppedError

REPORTS: list[Record] = [Report(float(step), "training", step, {"loss": step / 7}) for step in range(100)]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalWriter]:
    journal = JournalWriter(tmp_path / "1.journal")
    yield journal
    journal.close()


def write(path: Path, records: list[Record]) -> bytes:
    journal = JournalWriter(path)
    for record in records:
        journal.append(record)
    journal.close()
    return path.read_bytes()


def test_records_come_back_in_order(tmp_path: Path) -> None:
    """Records are read in the order in which they were appended."""
    write(tmp_path / "1.journal", REPORTS)

    assert list(read_records(tmp_path / "1.journal")) == REPORTS


def test_a_journal_has_one_writer(journal: JournalWriter) -> None:
    """A second writer of the same journal is refused."""
    with pytest.raises(FileExistsError):
        JournalWriter(journal.path)


def test_only_the_owner_may_read(journal: JournalWriter) -> None:
    """A journal's file can be read by its owner only."""
    assert journal.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("num_bytes_torn", [1, 10, 50])
def test_a_torn_last_line_is_dropped(tmp_path: Path, num_bytes_torn: int) -> None:
    """An unfinished last line is dropped, and all other records are read."""
    content = write(tmp_path / "1.journal", REPORTS)

    (tmp_path / "1.journal").write_bytes(content[:-num_bytes_torn])

    assert list(read_records(tmp_path / "1.journal")) == REPORTS[:-1]


def test_a_bad_line_is_skipped_and_reported(tmp_path: Path) -> None:
    """A bad line is skipped and reported with its offset, and the lines around it are read."""
    content = write(tmp_path / "1.journal", REPORTS)
    lines = content.splitlines(keepends=True)
    lines[40] = lines[40].replace(b"training", b"tra1ning")
    (tmp_path / "1.journal").write_bytes(b"".join(lines))

    (chunk,) = read_journal(tmp_path / "1.journal")

    assert chunk.records == REPORTS[:40] + REPORTS[41:]
    assert [line.offset for line in chunk.bad_lines] == [sum(map(len, lines[:40]))]
    assert "checksum" in chunk.bad_lines[0].problem


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Reading in small chunks, each from the offset of the last, gives every record once."""
    write(tmp_path / "1.journal", REPORTS)

    records: list[Record] = []
    offset = 0
    while chunk := next(read_journal(tmp_path / "1.journal", offset, chunk_bytes=200), None):
        records += chunk.records
        offset = chunk.end_offset

    assert records == REPORTS


def test_a_line_longer_than_a_chunk_is_read(tmp_path: Path) -> None:
    """A line that is longer than a chunk is read completely."""
    long: list[Record] = [Report(1.0, "training", 1, {f"metric {index}": index for index in range(1000)})]
    write(tmp_path / "1.journal", long)

    (chunk,) = read_journal(tmp_path / "1.journal", chunk_bytes=100)

    assert chunk.records == long


def test_an_unknown_kind_of_record_is_reported(tmp_path: Path) -> None:
    """A record of an unknown kind, as of a newer version, is reported as a bad line, and others are read."""
    import google_crc32c

    body = b'{"type":"of the future","time":1.0}'
    write(tmp_path / "1.journal", REPORTS)
    with (tmp_path / "1.journal").open("ab") as file:
        file.write(b"%08x %b\n" % (google_crc32c.value(body), body))

    (chunk,) = read_journal(tmp_path / "1.journal")

    assert chunk.records == REPORTS
    assert "does not know" in chunk.bad_lines[0].problem


def test_threads_append_whole_lines(journal: JournalWriter) -> None:
    """Lines of several threads never mix."""

    def append(thread: int) -> None:
        for step in range(500):
            journal.append(Report(1.0, f"group {thread}", step, {"loss": 1.0}))

    threads = [threading.Thread(target=append, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    reports = [record for record in read_records(journal.path) if isinstance(record, Report)]
    assert len(reports) == 8 * 500
    for index in range(8):
        assert [r.steps_completed for r in reports if r.group == f"group {index}"] == list(range(500))


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    """Appending to a closed journal raises JournalError."""
    journal = JournalWriter(tmp_path / "1.journal")
    journal.close()

    with pytest.raises(JournalError, match="is closed"):
        journal.append(REPORTS[0])

    journal.close()


def test_a_forked_child_cannot_append(journal: JournalWriter) -> None:
    """A forked child cannot append to its parent's journal, and the parent still can."""
    child = os.fork()
    if child == 0:
        try:
            journal.append(REPORTS[0])
        except JournalError:
            os._exit(42)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    journal.append(REPORTS[1])

    assert os.waitstatus_to_exitcode(status) == 42
    assert list(read_records(journal.path)) == [REPORTS[1]]


@promise("full-disk-drops-reports")
def test_a_full_disk_drops_counts_and_announces(small_disk: Path) -> None:
    """Training goes on; the drop is warned of once, recorded when there is room, and raised once at the end."""
    journal = JournalWriter(small_disk / "1.journal")
    hog = small_disk / "hog"
    hog.write_bytes(b"x" * 896 * 1024)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3000):
            journal.append(Report(1.0, "training", step, {"loss": 1.0}))

    hog.unlink()
    journal.append(Report(1.0, "training", 3000, {"loss": 1.0}))
    with pytest.raises(ReportsDroppedError) as raised:
        journal.close()

    assert [warning.category for warning in caught] == [RuntimeWarning]
    (chunk,) = read_journal(journal.path)
    steps = [record.steps_completed for record in chunk.records if isinstance(record, Report)]
    announced = sum(record.count for record in chunk.records if isinstance(record, Dropped))
    assert chunk.bad_lines == []
    assert steps[-1] == 3000
    assert len(steps) + announced == 3001
    assert raised.value.num_dropped == announced > 0
    journal.close()


@needs("strace")
def test_a_failing_write_is_counted(tmp_path: Path) -> None:
    """An I/O error is no different from a full disk, and later records are kept."""
    source = f"""
import sys, warnings
from pathlib import Path
from core_sdk.errors import ReportsDroppedError
from core_sdk._home.journal import JournalWriter
from core_sdk._ground.records import ProgressReported
warnings.simplefilter("ignore")
journal = JournalWriter(Path({str(tmp_path / "1.journal")!r}))
for step in range(10):
    journal.append(ProgressReported(time=1.0, progress=step / 10))
try:
    journal.close()
except ReportsDroppedError as error:
    sys.exit(error.num_dropped)
"""
    journal = str(tmp_path / "1.journal")
    inject = strace("-P", journal, "-e", "trace=write", "-e", "inject=write:error=EIO:when=3..5")

    status = subprocess.run([*inject, sys.executable, "-c", source]).returncode

    records = list(read_records(tmp_path / "1.journal"))
    assert status == 3
    assert [round(r.progress * 10) for r in records if isinstance(r, ProgressReported)] == [0, 1, 5, 6, 7, 8, 9]
    assert [r.count for r in records if isinstance(r, Dropped)] == [3]


def test_threads_on_a_full_disk_lose_what_is_said_and_recorded(small_disk: Path) -> None:
    """On a full disk, threads damage no record of each other, and all lost records are counted and recorded."""
    journal = JournalWriter(small_disk / "1.journal")
    hog = small_disk / "hog"
    hog.write_bytes(bytes(900 * 1024))
    is_over = threading.Event()
    num_appended = [0, 0, 0]

    def append(thread: int) -> None:
        while not is_over.is_set():
            step = num_appended[thread]
            journal.append(Report(1.0, f"group {thread}", step, {"x" * 300 * thread: 1.0}))
            num_appended[thread] += 1

    threads = [threading.Thread(target=append, args=(index,)) for index in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        for kilobytes in range(896, 600, -8):
            full_at = journal._num_dropped + 10
            while journal._num_dropped < full_at and all(thread.is_alive() for thread in threads):
                is_over.wait(0.001)
            os.truncate(hog, kilobytes * 1024)
        is_over.set()
        for thread in threads:
            thread.join()
    hog.unlink()
    with pytest.raises(ReportsDroppedError) as raised:
        journal.close()

    (chunk,) = read_journal(journal.path)
    kept = [record for record in chunk.records if isinstance(record, Report)]
    recorded = sum(record.count for record in chunk.records if isinstance(record, Dropped))
    assert chunk.bad_lines == []
    assert sum(num_appended) - len(kept) == raised.value.num_dropped == recorded > 0


@needs("strace")
def test_a_signal_handler_that_reports_after_half_a_line_loses_nothing(tmp_path: Path) -> None:
    """A record that a signal handler appends after a half-written line is kept, and the half line is removed."""
    path = tmp_path / "1.journal"
    source = f"""
import resource, signal, sys, warnings
from pathlib import Path
from core_sdk.errors import ReportsDroppedError
from core_sdk._home.journal import JournalWriter
from core_sdk._ground.records import ProgressReported
warnings.simplefilter("ignore")
journal = JournalWriter(Path({str(path)!r}))

def let_the_file_grow(*_):
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.append(ProgressReported(time=2.0, progress=0.2))

signal.signal(signal.SIGUSR1, let_the_file_grow)
journal.append(ProgressReported(time=1.0, progress=0.1))
resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 20, resource.RLIM_INFINITY))
journal.append(ProgressReported(time=1.0, progress=0.3))
journal.append(ProgressReported(time=3.0, progress=0.4))
try:
    journal.close()
except ReportsDroppedError as error:
    sys.exit(error.num_dropped)
"""
    inject = strace("-P", str(path), "-e", "trace=write", "-e", "inject=write:signal=SIGUSR1:when=2")

    status = subprocess.run([*inject, sys.executable, "-c", source]).returncode

    (chunk,) = read_journal(path)
    assert status == 1
    assert chunk.bad_lines == []
    assert [r.progress for r in chunk.records if isinstance(r, ProgressReported)] == [0.1, 0.2, 0.4]
    assert [r.count for r in chunk.records if isinstance(r, Dropped)] == [1]


def test_a_record_that_must_not_be_dropped_leaves_nothing_of_itself(small_disk: Path) -> None:
    """append_or_raise() on a full disk raises and removes the half-written record; later records are read."""
    journal = JournalWriter(small_disk / "1.journal")
    hog = small_disk / "hog"
    journal.append(REPORTS[0])
    hog.write_bytes(bytes((1 << 20) - 8192))

    with pytest.raises(OSError, match="No space"):
        journal.append_or_raise(Report(1.0, "x" * 100_000, 1, {"loss": 1.0}))
    hog.unlink()
    journal.append_or_raise(REPORTS[1])
    journal.close()

    (chunk,) = read_journal(journal.path)
    assert chunk.bad_lines == []
    assert chunk.records == REPORTS[:2]


def test_the_alive_lock_dies_with_its_process(tmp_path: Path) -> None:
    """An alive lock is seen by other processes, and is freed when its process is killed."""
    lock = tmp_path / "alive"
    source = f"""
import signal
from pathlib import Path
from core_sdk._ground.alive import AliveLock
lock = AliveLock(Path({str(lock)!r}))
print("held", flush=True)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    was_alive = is_alive(lock)
    with pytest.raises(BlockingIOError):
        AliveLock(lock)

    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert was_alive
    assert not is_alive(lock)


def test_a_process_that_opens_its_lock_s_file_keeps_the_lock(tmp_path: Path) -> None:
    """A process that asks about its own lock or copies its file still holds the lock."""
    (tmp_path / "home").mkdir()
    path = tmp_path / "home" / "alive"
    lock = AliveLock(path)

    is_seen_by_itself = is_alive(path)
    shutil.copytree(path.parent, tmp_path / "backup")
    is_seen_by_others = is_alive_elsewhere(path)
    lock.release()

    assert is_seen_by_itself
    assert is_seen_by_others
    assert not is_alive(path)
    assert not is_alive(tmp_path / "backup" / "alive")


def test_a_forked_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:
    """A data-loader worker that outlives a kill -9 of its trainer; while the trainer lives the child sees that."""
    path = tmp_path / "alive"
    source = f"""
import os, signal
from pathlib import Path
from core_sdk._ground.alive import AliveLock, is_alive
path = Path({str(path)!r})
lock = AliveLock(path)
if os.fork() == 0:
    lock.release()
    print(os.getpid(), is_alive(path), flush=True)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child, child_sees = process.stdout.readline().split()
    try:
        was_alive = is_alive(path)

        process.kill()
        process.wait()

        os.kill(int(child), 0)
        assert was_alive
        assert child_sees == "True"
        assert not is_alive(path)
    finally:
        os.kill(int(child), signal.SIGKILL)
        process.communicate()


def test_a_child_forked_while_a_lock_is_taken_does_not_keep_it(tmp_path: Path) -> None:
    """Threads fork at any time: there is no moment at which a child gets away with the lock."""
    source = f"""
import os, signal, threading, time
from pathlib import Path
from core_sdk._ground.alive import AliveLock
children, locks = [], []
is_over = threading.Event()
def fork():
    while not is_over.is_set():
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
forking = threading.Thread(target=fork)
forking.start()
deadline = time.monotonic() + 20
while len(children) < 100 and time.monotonic() < deadline:
    locks.append(AliveLock(Path({str(tmp_path)!r}) / str(len(locks))))
is_over.set()
forking.join()
print(*children, flush=True)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    children = process.stdout.readline().split()
    num_alive_before = sum(map(is_alive, tmp_path.iterdir()))
    process.kill()
    process.wait()

    try:
        # A child that was forked last may not have run yet.
        wait_for(lambda: not any(map(is_alive, tmp_path.iterdir())))
    finally:
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        process.communicate()
    assert num_alive_before == len(list(tmp_path.iterdir())) > 0


def test_a_question_never_refuses_a_claimant(tmp_path: Path) -> None:
    """Processes that ask whether a lock is held never keep another one from taking it."""
    path = tmp_path / "alive"
    path.touch()
    source = f"""
from pathlib import Path
from core_sdk._ground.alive import is_alive
print("asking", flush=True)
while True:
    is_alive(Path({str(path)!r}))
"""
    reader = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    reader.stdout.readline()

    for _ in range(2000):
        AliveLock(path).release()

    reader.kill()
    reader.communicate()


def test_of_many_claimants_one_has_the_lock(tmp_path: Path) -> None:
    """Of several processes that claim a lock again and again, only one has it at a time, even if files are removed."""
    source = f"""
import os, sys
from pathlib import Path
from core_sdk._ground.alive import AliveLock
path = Path({str(tmp_path / "alive")!r})
num_claims = 0
while num_claims < 200:
    try:
        lock = AliveLock(path)
    except BlockingIOError:
        continue
    num_claims += 1
    os.close(os.open(path.with_name("owner"), os.O_CREAT | os.O_EXCL))
    path.with_name("owner").unlink()
    path.unlink()
    lock.release()
"""
    claimants = [subprocess.Popen([sys.executable, "-c", source]) for _ in range(3)]

    assert [claimant.wait(60) for claimant in claimants] == [0, 0, 0]


def is_alive_elsewhere(path: Path) -> bool:
    """Returns whether another process sees the writer as alive."""
    source = "import pathlib, sys; from core_sdk._ground import alive; "
    source += "sys.exit(alive.is_alive(pathlib.Path(sys.argv[1])))"
    return subprocess.run([sys.executable, "-c", source, str(path)]).returncode == 1


def test_no_standard_stream_leads_into_the_journal(tmp_path: Path) -> None:
    """In a daemon without standard streams, the journal's descriptor is none of 0 to 2, where C code writes."""
    source = f"""
import os
import shutil
os.closerange(0, 3)
from pathlib import Path
from core_sdk._home.journal import JournalWriter
from core_sdk._ground.records import ProgressReported
journal = JournalWriter(Path({str(tmp_path / "1.journal")!r}))
for descriptor in range(3):
    try:
        os.write(descriptor, b"a warning of some library")
    except OSError:
        pass
journal.append(ProgressReported(time=1.0, progress=0.5))
journal.close()
"""

    status = subprocess.run([sys.executable, "-c", source]).returncode

    assert status == 0
    assert list(read_records(tmp_path / "1.journal")) == [ProgressReported(time=1.0, progress=0.5)]
