"""Records come from a spool to the home once each, whatever is killed, repeated or late."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_for
from saving import store_alone

from core_sdk._ground.records import ClusterInfo, Report, TrialRecord
from core_sdk._home import Home
from core_sdk._home.journal import JournalWriter, read_records
from core_sdk._home.spool import node
from core_sdk._home.spool.pieces import Arrived, Piece, in_pieces
from core_sdk._home.spool.receiver import Receiver
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import CheckpointDamagedError, UnsafePathError

JOURNAL = "runs/1/1.journal"

WRITE = """
import sys
from pathlib import Path
from core_sdk._home.journal import JournalWriter
from core_sdk._ground.records import Report
journal = JournalWriter(Path(sys.argv[1]))
step = 0
while True:
    journal.append(Report(time=0.0, group="training", steps_completed=step, metrics={"step": step}))
    step += 1
"""
BRING = """
import sys
from pathlib import Path
from core_sdk._home.spool import node
from core_sdk._home.spool.receiver import Receiver
spool, home = map(Path, sys.argv[1:])
receiver = Receiver(home, 1, 1)
while True:
    for piece in node.read_news(spool, 1, 1, receiver.known(), 1.0):
        receiver.receive(piece)
"""


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "spool" / "runs" / "1").mkdir(parents=True)
    return tmp_path / "spool"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "runs" / "1").mkdir(parents=True)
    return tmp_path / "home"


def report(step: int) -> Report:
    return Report(time=0.0, group="training", steps_completed=step, metrics={"step": step})


def bring(spool: Path, home: Path, attempt: int | None = 1) -> int:
    """Brings all news home and returns the number of pieces."""
    receiver, count = Receiver(home, 1, attempt), 0
    while pieces := node.read_news(spool, 1, attempt, receiver.known(), 0):
        count += len(pieces)
        for piece in pieces:
            receiver.receive(piece)
    return count


def test_a_journal_is_the_same_at_home_after_kills_of_all_who_take_part(spool: Path, home: Path) -> None:
    """A journal arrives unchanged, although its writer and those who bring it are killed."""
    writer = subprocess.Popen([sys.executable, "-c", WRITE, spool / JOURNAL])
    for _ in range(4):
        bringer = subprocess.Popen([sys.executable, "-c", BRING, spool, home])
        size = (home / JOURNAL).stat().st_size if (home / JOURNAL).exists() else 0
        wait_for(lambda size=size: (home / JOURNAL).exists() and (home / JOURNAL).stat().st_size > size)  # type: ignore[misc]
        bringer.kill()
        bringer.wait()
    writer.kill()
    writer.wait()

    bring(spool, home)

    written = (spool / JOURNAL).read_bytes()
    assert (home / JOURNAL).read_bytes() == written[: written.rfind(b"\n") + 1]
    steps = [record.steps_completed for record in read_records(home / JOURNAL) if isinstance(record, Report)]
    assert steps == list(range(len(steps)))


def test_two_who_bring_the_same_records_at_once_do_not_double_them(spool: Path, home: Path) -> None:
    """Two processes that bring the same records at once do not double them."""
    writer = subprocess.Popen([sys.executable, "-c", WRITE, spool / JOURNAL])
    bringers = [subprocess.Popen([sys.executable, "-c", BRING, spool, home]) for _ in range(2)]
    wait_for(lambda: (home / JOURNAL).exists() and (home / JOURNAL).stat().st_size > 1_000_000)
    for process in (writer, *bringers):
        process.kill()
        process.wait()

    bring(spool, home)

    written = (spool / JOURNAL).read_bytes()
    assert (home / JOURNAL).read_bytes() == written[: written.rfind(b"\n") + 1]


def test_a_spool_forgets_with_a_trial_what_no_other_trial_there_needs(tmp_path: Path) -> None:
    """Two trials begin with one checkpoint: it stays until both are forgotten. So does the code."""
    spool = Home.create(tmp_path / "spool")
    for directory in (spool.checkpoints / "one", spool.code, spool.folder(1).path, spool.folder(2).path):
        directory.mkdir()
    for folder in (spool.folder(1), spool.folder(2)):
        folder.write_record(TrialRecord(trial_id=folder.trial_id, experiment_id=1, created=0.0, seed=0))
        folder.write_run_info(1, ClusterInfo(latest_checkpoint="one"))

    node.forget(spool.root, 1)
    assert (spool.checkpoints / "one").exists()
    assert spool.code.exists()
    node.forget(spool.root, 2)
    node.forget(spool.root, 2)

    assert not (spool.checkpoints / "one").exists()
    assert not spool.code.exists()
    assert node.trials_left(spool.root) == []


def test_pieces_that_come_twice_late_or_in_another_order_do_no_harm(home: Path) -> None:
    """Pieces may be repeated, late or out of order."""
    content = random.Random(1).randbytes(10_000)
    pieces = [Piece(JOURNAL, offset, content[offset : offset + 700]) for offset in range(0, len(content), 300)]
    receiver, chance = Receiver(home, 1, 1), random.Random(2)

    while receiver.known().get(JOURNAL, Arrived()).size_bytes < len(content):
        receiver.receive(chance.choice(pieces))

    assert (home / JOURNAL).read_bytes() == content


def test_nothing_is_added_to_a_file_of_another_trial(spool: Path, home: Path) -> None:
    """Records are not appended to the file of another trial with the same id."""
    journal = JournalWriter(spool / JOURNAL)
    for step in range(10):
        journal.append(report(step))
    journal.close()
    bring(spool, home)
    (home / JOURNAL).unlink()
    other = JournalWriter(home / JOURNAL)
    other.append(report(1000))
    other.close()
    before = (home / JOURNAL).read_bytes()

    with pytest.raises(OSError, match=r"another file of this name, of another trial.*1\.journal"):
        bring(spool, home)

    assert (home / JOURNAL).read_bytes() == before


def test_half_a_line_is_left_until_it_is_whole(spool: Path, home: Path) -> None:
    """A partial line is not brought home before it is complete."""
    journal = JournalWriter(spool / JOURNAL)
    journal.append(report(0))
    whole = (spool / JOURNAL).read_bytes()
    with (spool / JOURNAL).open("ab") as file:
        file.write(b"half a line")

    bring(spool, home)

    journal.close()
    assert (home / JOURNAL).read_bytes() == whole


def test_files_that_are_replaced_come_when_they_change(spool: Path, home: Path) -> None:
    """A file that is replaced is brought again when it changes."""
    (spool / "runs/1/trial.json").write_text("first")
    (spool / "runs/1/1.environment").write_text("known")
    receiver = Receiver(home, 1, 1)

    assert [receiver.receive(piece) for piece in node.read_news(spool, 1, 1, receiver.known(), 0)] == [5, 5]
    assert node.read_news(spool, 1, 1, receiver.known(), 0) == []
    (spool / "runs/1/trial.json").write_text("second")
    assert bring(spool, home, attempt=None) == 0
    (piece,) = node.read_news(spool, 1, 1, receiver.known(), 0)
    receiver.receive(piece)

    assert (home / "runs/1/trial.json").read_text() == "second"


@pytest.mark.parametrize(
    "name",
    [
        "tracker.db",
        "runs/2/1.journal",
        "runs/1/1.journal",
        "runs/1/1.exit",
        "runs/1/tensorboard/../../2/x",
        "../x",
        "runs/1/command.json",
    ],
)
def test_a_node_writes_nothing_but_its_attempt(home: Path, name: str) -> None:
    """A node may only write files of its own attempt and later ones."""
    receiver = Receiver(home, 1, 2)

    with pytest.raises(UnsafePathError):
        receiver.receive(Piece(name, 0, b"x"))
    assert receiver.receive(Piece("runs/1/3.journal", 0, b"x")) == 1


def test_only_the_home_itself_is_taken_for_it(tmp_path: Path) -> None:
    """A home is recognized by its identity and not by its path."""
    first, second = Home.create(tmp_path / "first"), Home.create(tmp_path / "second")
    identity = first.identity()
    second.identity()

    assert first.identity() == identity
    assert node.sees_home(tmp_path / "first", identity)
    assert not node.sees_home(tmp_path / "second", identity)
    assert not node.sees_home(tmp_path / "third", identity)


def test_a_checkpoint_from_elsewhere_exists_once_it_is_verified(tmp_path: Path) -> None:
    """A checkpoint that is received exists only after its verification."""
    source, target = DirectoryStorage(tmp_path / "source"), DirectoryStorage(tmp_path / "target")
    with source.stage("one") as staging:
        (staging.path / "model").write_bytes(b"weights")
        store_alone(staging, {})

    with pytest.raises(CheckpointDamagedError), target.receive("one") as directory:
        shutil.copytree(tmp_path / "source/one", directory, dirs_exist_ok=True)
        (directory / "model").write_bytes(b"weightz")
    assert not (tmp_path / "target/one").exists()
    for _ in range(2):
        with target.receive("one") as directory:
            shutil.copytree(tmp_path / "source/one", directory, dirs_exist_ok=True)

    assert target.verify("one").resources == source.verify("one").resources


def test_a_large_file_comes_in_pieces_and_an_empty_one_in_one(spool: Path) -> None:
    """Large and empty files arrive unchanged."""
    for name, content in {"large": random.Random(1).randbytes(9 << 20), "empty": b""}.items():
        for piece in in_pieces(name, io.BytesIO(content)):
            node.put(spool, piece)
        assert (spool / name).read_bytes() == content
