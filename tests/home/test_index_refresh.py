"""The index follows the folder: whatever happens to the files, it says what one made from nothing would say."""

from __future__ import annotations

import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from home.journals import (
    START,
    age,
    append,
    everything,
    lines,
    new_trial,
    rebuilt,
    record,
    report,
    started,
    stored,
)
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from processes import Script, wait_for
from promises import promise

from core_sdk._ground.records import (
    CheckpointDeleted,
    Dropped,
    Ended,
    ExitRecord,
    MetadataSet,
    Profile,
    ProgressReported,
    Record,
    Report,
    StatusSet,
)
from core_sdk._home import Home, TrialFolder
from core_sdk._home.index import Index
from core_sdk._home.index._database import database_lock

_VALUES: list[int | float | str] = [0, -7, 2**63, 0.1, -0.0, 1e300, "NaN", "-Infinity"]

_REFRESH = """
    from pathlib import Path
    from core_sdk._home import Home
    from core_sdk._home.index import Index
    import sys

    with Index(Home.open(Path(sys.argv[1]))) as index:
        print(index.refresh().num_points)
"""


@settings(max_examples=25, deadline=None, phases=[Phase.reuse, Phase.generate])  # chance does not shrink
@given(chance=st.randoms(use_true_random=False))
def test_an_index_that_grew_in_any_steps_says_what_a_rebuilt_one_says(chance: random.Random) -> None:
    """Journals grow by any bytes, in any order, between refreshes; folders look unchanged unless a file came."""
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory, "home"))
        folders = [new_trial(home) for _ in range(chance.randint(1, 3))]
        pieces = [
            ((folder, attempt, rank), piece)
            for folder in folders
            for attempt in range(chance.randint(0, 1), chance.randint(2, 4))
            for rank in range(chance.randint(1, 3) if attempt else 1)
            for piece in cut(journal(folder, attempt, rank, chance), chance)
        ]
        with Index(home) as index:
            for (folder, attempt, rank), piece in interleaved(pieces, chance):
                append(folder, attempt, piece, rank)
                if chance.random() < 0.5:
                    age(folder)
                    index.refresh()

            index.refresh()

            assert everything(index) == rebuilt(home)


def journal(folder: TrialFolder, attempt: int, rank: int, chance: random.Random) -> bytes:
    """Records of all kinds, now and then a bad line, and perhaps a torn tail."""
    content = lines(started(folder, attempt, chance.randint(0, 12), rank))
    for steps in range(chance.randint(0, 12), chance.randint(5, 25)):
        content += lines(*chance.choices(records(folder, attempt, steps, chance), k=2))
        if chance.random() < 0.1:
            content += b"00000000 {spoiled}\n"
    return content[: chance.choice([None, None, -3])]


def records(folder: TrialFolder, attempt: int, steps: int, chance: random.Random) -> list[Record]:
    now = START + 1000 * attempt + chance.random() * 100
    names = chance.sample(["loss", "accuracy", "a\0b", "😀"], k=chance.randint(0, 3))
    values: dict[str, int | float | str] = {name: chance.choice(_VALUES) for name in names}
    storage_id = f"{folder.trial_id}-{attempt}-{steps}"
    others: list[Record] = [
        stored(storage_id, steps, time=now),
        CheckpointDeleted(time=now, storage_id=f"{folder.trial_id}-{attempt}-{chance.randint(0, 25)}"),
        ProgressReported(time=now, progress=chance.random()),
        StatusSet(time=now, status=storage_id),
        MetadataSet(time=now, metadata={"of": [storage_id]}),
        Dropped(time=now, count=2, reason="full"),
        Ended(time=now, outcome=chance.choice(["completed", "paused", "error"])),
    ]
    return [
        Report(now, chance.choice(["training", "validation"]), steps, dict(values)),
        Report(now, "training", steps, dict(values), [dict(values), {}]),
        Profile(time=now, group="cpu", metrics={"cpu_util": chance.random()}),
        chance.choice(others),
    ]


def cut(content: bytes, chance: random.Random) -> list[bytes]:
    ends = sorted(chance.choices(range(len(content) + 1), k=chance.randint(0, 4)))
    return [content[start:end] for start, end in zip([0, *ends], [*ends, len(content)], strict=True)]


Journal = tuple[TrialFolder, int, int]
"""Of which trial, attempt and rank."""


def interleaved(pieces: list[tuple[Journal, bytes]], chance: random.Random) -> list[tuple[Journal, bytes]]:
    """Returns the pieces in a random order that keeps the order within each journal."""
    order = [journal for journal, _ in pieces]
    chance.shuffle(order)
    waiting = {journal: [piece for piece in pieces if piece[0] == journal] for journal in order}
    return [waiting[journal].pop(0) for journal in order]


@pytest.mark.parametrize("num_rounds", [2, 12])
def test_an_indexer_that_was_killed_at_any_moment_neither_loses_nor_doubles_a_point(
    home: Home, start_script: Callable[..., Script], num_rounds: int
) -> None:
    """`kill -9` when the file has reached some random size, again and again; the next one goes on."""
    chance = random.Random(1)
    for _ in range(4):
        folder = new_trial(home)
        record(folder, *(report(steps, loss=1 / (steps + 1), accuracy=0.5) for steps in range(60_000)))
    expected = rebuilt_figures(home)
    full_size = home.database.stat().st_size

    num_killed = 0
    for _ in range(num_rounds):
        home.database.unlink()
        for _ in range(2):
            target = chance.randint(1, full_size)
            script = start_script(_REFRESH, str(home.root))
            wait_for(lambda: has_ended(script) or size_of(home.database) >= target)  # noqa: B023
            script.process.kill()
            num_killed += script.process.wait() == -signal.SIGKILL
        with Index(home) as index:
            index.refresh()

            assert figures(index) == expected
    assert num_killed > num_rounds / 2


def rebuilt_figures(home: Home) -> list[object]:
    Index.rebuild(home)
    with Index(home) as index:
        return figures(index)


def figures(index: Index) -> list[object]:
    trials = index.trials()
    return [trials, *(index.summary(trial.trial_id) for trial in trials)]


def has_ended(script: Script) -> bool:
    return script.process.poll() is not None


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_indexers_that_run_at_once_index_each_point_once(home: Home, start_script: Callable[..., Script]) -> None:
    """Of several indexers one does the work, and no point is indexed twice."""
    folder = new_trial(home)
    record(folder, *(report(steps, loss=0.5) for steps in range(30_000)))

    scripts = [start_script(_REFRESH, str(home.root), name=f"reader{number}.py") for number in range(3)]
    ends = [script.wait() for script in scripts]

    assert [code for code, _, _ in ends] == [0, 0, 0]
    assert sorted(int(output) for _, output, _ in ends) == [0, 0, 30_000]
    with Index(home) as index:
        assert [row.count for row in index.series(folder.trial_id)] == [30_000]


def test_what_has_not_changed_is_not_read_again(home: Home) -> None:
    """A folder that has not changed is not read again, and a journal that grew is."""
    quiet, busy = new_trial(home), new_trial(home)
    for folder in (quiet, busy):
        record(folder, report(1, loss=0.5))
        age(folder)
    with Index(home) as index:
        index.refresh()
        append(busy, 1, lines(report(2, loss=0.4)))

        result = index.refresh()

        assert (result.num_trials, result.num_points) == (1, 1)
        assert index.refresh().num_trials == 0


def test_what_has_not_changed_needs_no_lock(home: Home) -> None:
    """Another process that reads records of its own into the index keeps nobody waiting who needs none of them."""
    record(folder := new_trial(home), report(1, loss=0.5))
    age(folder)
    with Index(home) as index:
        index.refresh()

        with database_lock(home.database):
            assert index.refresh().num_trials == 0


def test_a_change_within_one_tick_of_the_clock_is_seen(home: Home) -> None:
    """The folder's time is the same before and after it, as where file systems count in seconds."""
    folder = new_trial(home, lr=0.1)
    status = folder.path.stat()
    with Index(home) as index:
        index.refresh()
        trial = folder.read_record()
        trial.hparams["lr"] = 0.2
        folder.write_record(trial)
        os.utime(folder.path, ns=(status.st_atime_ns, status.st_mtime_ns))

        index.refresh()

        assert index.trial(1).hparams == {"lr": 0.2}


def test_a_refresh_ends_while_a_script_reports_faster_than_it_is_read(home: Home) -> None:
    """A refresh ends although a script writes faster than it reads, and leaves some of that to the next one."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5))
    many = b"".join(lines(report(steps, loss=0.5)) for steps in range(100_000))
    is_over = threading.Event()
    num_written = 0

    def report_on() -> None:
        nonlocal num_written
        while not is_over.is_set() and folder.journal_path(1).stat().st_size < 2 << 30:
            append(folder, 1, many)
            num_written += 100_000

    script = threading.Thread(target=report_on)
    script.start()
    with Index(home) as index:
        result = index.refresh()
        is_over.set()
        script.join()

    assert result.num_trials == 1
    assert result.num_points < num_written


def test_a_torn_last_line_is_read_when_it_is_whole(home: Home) -> None:
    """A partial last line is not a bad line and is read when it is complete."""
    folder = new_trial(home)
    record(folder)
    line = lines(report(1, loss=0.5))
    append(folder, 1, line[:-10])
    with Index(home) as index:
        index.refresh()
        before = list(index.reports(1))
        append(folder, 1, line[-10:])

        index.refresh()

        assert before == []
        assert [row.metrics for row in index.reports(1)] == [{"loss": 0.5}]
        assert index.trial(1).num_bad_lines == 0


@promise("damaged-records-skipped")
def test_a_bad_line_is_counted_and_said_once(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """A bad line is counted and reported once, and the lines around it are kept."""
    folder = new_trial(home)
    line = lines(report(2, loss=0.4))
    record(folder, report(1, loss=0.5))
    append(folder, 1, line.replace(b"0.4", b"0.5") + lines(report(3, loss=0.3)))
    with Index(home) as index:
        index.refresh()
        index.refresh()

        assert [row.steps_completed for row in index.reports(1)] == [1, 3]
        assert index.trial(1).num_bad_lines == 1
    assert caplog.text.count("wrong checksum") == 1


def test_a_step_beyond_64_bits_is_a_bad_line(home: Home) -> None:
    """A step beyond 64 bits counts as a bad line and does not stop the indexing."""
    record(new_trial(home), report(2**63, loss=0.5), report(1, loss=0.4))
    with Index(home) as index:
        index.refresh()

        assert [row.steps_completed for row in index.reports(1)] == [1]
        assert index.trial(1).num_bad_lines == 1


def test_a_journal_that_became_shorter_is_indexed_anew(home: Home) -> None:
    """A journal that became shorter is indexed from its beginning, without the old records."""
    folder = new_trial(home)
    record(folder, *(report(steps, loss=0.5) for steps in range(10)), stored("a", 9))
    with Index(home) as index:
        index.refresh()
        folder.journal_path(1).write_bytes(lines(started(folder), report(3, accuracy=0.9)))
        age(folder)

        index.refresh()

        assert everything(index) == rebuilt(home)
        assert [row.metrics for row in index.reports(1)] == [{"accuracy": 0.9}]


def test_what_a_deleted_attempt_superseded_shows_again(home: Home) -> None:
    """If an attempt's journal is deleted, the reports that it superseded are valid again."""
    folder = new_trial(home)
    record(folder, *(report(steps, loss=0.5) for steps in range(5)))
    record(folder, report(2, attempt=2, loss=0.1), attempt=2, resumed_steps=1)
    with Index(home) as index:
        index.refresh()
        folder.journal_path(2).unlink()

        index.refresh()

        assert [row.steps_completed for row in index.reports(1)] == [0, 1, 2, 3, 4]
        assert index.trial(1).num_attempts == 1


@pytest.mark.parametrize("leaves_folder", [True, False])
def test_what_the_folder_lost_the_index_forgets(home: Home, leaves_folder: bool) -> None:
    """Trials and experiments; a deleted trial's empty folder stays behind, or does not."""
    gone, kept = new_trial(home, experiment="gone"), new_trial(home, experiment="kept")
    for folder in (gone, kept):
        record(folder, report(1, loss=0.5), stored(f"of-{folder.trial_id}", 1))
    with Index(home) as index:
        index.refresh()
        shutil.rmtree(gone.path)
        if leaves_folder:
            gone.path.mkdir()
        home.experiment(1).delete()

        index.refresh()

        assert [row.trial_id for row in index.trials()] == [kept.trial_id]
        assert [row.name for row in index.experiments()] == ["kept"]
        assert [row.storage_id for row in index.checkpoints()] == [f"of-{kept.trial_id}"]
        assert list(index.reports(gone.trial_id)) == []


@promise("damaged-records-skipped")
def test_a_damaged_trial_is_left_out_and_named(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """A trial with a damaged record is left out and named until it is repaired."""
    damaged, good = new_trial(home), new_trial(home)
    for folder in (damaged, good):
        record(folder, report(1, loss=0.5))
    path = damaged.path / "trial.json"
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    with Index(home) as index:
        result = index.refresh()
        without = [row.trial_id for row in index.trials()]
        path.write_bytes(content)
        index.refresh()

        assert list(result.left_out) == [damaged.path]
        assert without == [good.trial_id]
        assert [row.trial_id for row in index.trials()] == [damaged.trial_id, good.trial_id]
    assert str(path) in caplog.text


def test_changed_records_are_read_again(home: Home) -> None:
    """A new label, a changed hyperparameter and an exit status arrive, in an aged folder too."""
    folder = new_trial(home)
    record(folder)
    age(folder)
    with Index(home) as index:
        index.refresh()
        with home.experiment(1).edit() as experiment:
            experiment.labels.append("good")
        trial = folder.read_record()
        trial.hparams["lr"] = 0.1
        folder.write_record(trial)
        folder.write_exit(1, ExitRecord(time=START, code=3))

        index.refresh()

        assert index.experiment("digits").labels == ("good",)
        assert index.trial(1).hparams == {"lr": 0.1}
        assert index.trial(1).reason == "its process exited with status 3"


def test_a_copied_trial_is_a_trial_of_its_own(home: Home) -> None:
    """A copied trial folder is a trial of its own with the folder's number."""
    record(new_trial(home), report(1, loss=0.5), stored("a", 1))
    shutil.copytree(home.runs / "1", home.runs / "7")
    with Index(home) as index:
        index.refresh()

        assert [row.trial_id for row in index.trials()] == [1, 7]
        assert [row.steps_completed for row in index.reports(7)] == [1]
        assert index.trial(7).latest_checkpoint == "a"


def test_a_long_indexing_says_on_a_terminal_how_far_it_is(home: Home) -> None:
    """Long indexing shows its progress on a terminal and nothing elsewhere."""
    folder = new_trial(home)
    record(folder, *(report(step, a=1.0, b=2.0, c=3.0) for step in range(300_000)))
    terminal, device = pty.openpty()
    rebuild = "import sys; from pathlib import Path; from core_sdk._home import Home; "
    rebuild += "from core_sdk._home.index import Index; Index.rebuild(Home(Path(sys.argv[1])))"

    with os.fdopen(device, "wb") as stderr:
        subprocess.run([sys.executable, "-c", rebuild, str(home.root)], stderr=stderr, check=True)
    with os.fdopen(terminal, "rb", buffering=0) as shown:
        text = shown.read(1 << 16).decode()
    silent = subprocess.run([sys.executable, "-c", rebuild, str(home.root)], capture_output=True, check=True)

    assert "reading the records: 0 of 1 trials, " in text
    assert text.endswith("\r\033[K")
    assert silent.stderr == b""


def renamed_over(home: Home, other: Home) -> None:
    """Replaces the files of trial 1 by renaming, as rsync does."""
    for path in (other.runs / "1").iterdir():
        shutil.copy2(path, home.runs / f".{path.name}")
        (home.runs / f".{path.name}").replace(home.runs / "1" / path.name)


def written_over(home: Home, other: Home) -> None:
    """Overwrites the files of trial 1 in place, as `cp` does, so that the folder's time stays."""
    for path in (other.runs / "1").iterdir():
        (home.runs / "1" / path.name).write_bytes(path.read_bytes())


def folder_replaced(home: Home, other: Home) -> None:
    """Replaces the folder of trial 1 by another with the same time."""
    status = (home.runs / "1").stat()
    shutil.rmtree(home.runs / "1")
    shutil.copytree(other.runs / "1", home.runs / "1")
    os.utime(home.runs / "1", ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("replace", [renamed_over, written_over, folder_replaced])
@pytest.mark.parametrize("num_more", [-3, 0, 5])
def test_a_journal_that_was_replaced_is_read_from_its_beginning(
    home: Home,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    replace: Callable[[Home, Home], None],
    num_more: int,
) -> None:
    """Whether the new one is shorter, longer or as long; nothing of the old training is left, and pages hear of it."""
    other = Home(tmp_path / "other")
    folders = [new_trial(home), new_trial(other)]
    for value, folder, num_reports in zip((1.5, 2.5), folders, (50, 50 + num_more), strict=True):
        record(folder, *(report(step, loss=value) for step in range(10, 10 + num_reports)), stored(f"of {value}", 10))
        record(folder, *(report(step, attempt=2, loss=value) for step in range(20, 25)), attempt=2, resumed_steps=20)
        age(folder)
    with Index(home) as index:
        index.refresh()
        index.refresh()
        before = index.marks()

        replace(home, other)
        index.refresh()

        assert {row.metrics["loss"] for row in index.reports(1, superseded=True)} == {2.5}
        assert [row.storage_id for row in index.checkpoints()] == ["of 2.5"]
        assert index.marks() != before
        assert everything(index) == rebuilt(home)
    assert caplog.messages == []


def test_a_file_that_was_only_touched_is_not_read_again(home: Home) -> None:
    """A file with a new time and the same content is not read again."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5))
    with Index(home) as index:
        index.refresh()
        os.utime(folder.journal_path(1), (START, START))

        touched, again = index.refresh(), index.refresh(only_open=True)

        assert (touched.num_points, again.num_points) == (0, 0)
        assert [row.metrics for row in index.reports(1)] == [{"loss": 0.5}]


def test_one_trial_is_brought_up_to_date_alone(home: Home) -> None:
    """A refresh of one trial follows it, and its experiment, and leaves the other trials as they were."""
    first, second = new_trial(home), new_trial(home)
    record(first, report(1, loss=0.5))
    record(second, report(1, loss=1.5))
    with Index(home) as index:
        index.refresh(trial_id=2)
        begun = [row.trial_id for row in index.trials()]
        for folder in (first, second):
            append(folder, 1, lines(report(2, loss=0.25)))

        index.refresh(trial_id=2)
        steps_of_second = [row.steps_completed for row in index.reports(2)]
        index.refresh()

        assert (begun, steps_of_second) == ([2], [1, 2])
        assert [row.steps_completed for row in index.reports(1)] == [1, 2]
        assert everything(index) == rebuilt(home)


def test_one_trial_that_is_gone_is_forgotten_alone(home: Home) -> None:
    """A refresh of a trial without a folder forgets it, and no other one."""
    folders = [new_trial(home), new_trial(home)]
    with Index(home) as index:
        index.refresh()
        for folder in folders:
            shutil.rmtree(folder.path)

        index.refresh(trial_id=2)

        assert [row.trial_id for row in index.trials()] == [1]
