"""What ranks other than the chief keep: their reports, their progress, and their node's figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_sdk._ground.records import FORMAT, AttemptStarted, Dropped, Profile, ProgressReported, Report, StatusSet
from core_sdk._home.journal import RankJournal, read_records
from core_sdk.errors import JournalError, ReportsDroppedError


@pytest.fixture
def start() -> AttemptStarted:
    return AttemptStarted(time=1.0, format=FORMAT, trial_id=1, attempt=1, host="here", pid=1, sdk_version="0", rank=1)


def test_a_ranks_journal_is_made_with_its_first_record(tmp_path: Path, start: AttemptStarted) -> None:
    """A rank's journal is created with the first record that is kept, and not before."""
    journal = RankJournal(tmp_path / "1.rank1.journal", start, is_kept=True)
    journal.append(StatusSet(time=1.0, status="only the chief's counts"))
    existed = journal.path.exists()
    report = Report(1.0, "training", 1, {"loss": 0.5})
    progress, profile = ProgressReported(time=2.0, progress=0.5), Profile(time=3.0, group="cpu", metrics={"x": 1})

    for record in (report, progress, profile):
        journal.append(record)
    journal.close()

    assert not existed
    assert list(read_records(journal.path)) == [start, report, progress, profile]
    with pytest.raises(JournalError, match="is closed"):
        journal.append(progress)


def test_a_ranks_journal_that_cannot_be_made_does_not_stop_the_training(tmp_path: Path, start: AttemptStarted) -> None:
    """If a rank's journal cannot be created, a warning says so, and close() counts the lost records."""
    journal = RankJournal(tmp_path / "missing" / "1.rank1.journal", start, is_kept=True)

    with pytest.warns(RuntimeWarning, match="records of rank 1 are not kept"):
        journal.append(ProgressReported(time=1.0, progress=0.5))
    journal.append(ProgressReported(time=1.0, progress=0.6))

    with pytest.raises(ReportsDroppedError, match="2 records"):
        journal.close()
    journal.close()


def test_a_ranks_journal_is_made_as_soon_as_it_can_be(tmp_path: Path, start: AttemptStarted) -> None:
    """A rank's journal is created as soon as that is possible, with the number of records lost before."""
    directory = tmp_path / "missing"
    journal = RankJournal(directory / "1.rank1.journal", start, is_kept=True)
    with pytest.warns(RuntimeWarning):
        journal.append(Report(1.0, "training", 1, {"loss": 0.5}))
    directory.mkdir()
    kept = Report(2.0, "training", 2, {"loss": 0.25})

    journal.append(kept)

    first, dropped, last = read_records(journal.path)
    assert (first, last) == (start, kept)
    assert isinstance(dropped, Dropped)
    assert dropped.count == 1
    with pytest.raises(ReportsDroppedError, match="1 record"):
        journal.close()


def test_a_full_disk_leaves_no_journal_without_its_beginning(small_disk: Path, start: AttemptStarted) -> None:
    """If a full disk takes no first line, the rank's journal is removed again."""
    with (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            try:
                filler.write(bytes(4096))
            except OSError:
                break
    journal = RankJournal(small_disk / "1.rank1.journal", start, is_kept=True)

    with pytest.warns(RuntimeWarning, match="are not kept"):
        journal.append(ProgressReported(time=1.0, progress=0.5))

    assert not journal.path.exists()
    with pytest.raises(ReportsDroppedError):
        journal.close()
