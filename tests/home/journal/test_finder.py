"""Few records are found in long journals without decoding the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_sdk._ground.records import CheckpointDeleted, CheckpointUsed, ProgressReported, Record, Report
from core_sdk._home.journal import encode_line, find_records


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "1.journal"


def deleted(number: int) -> CheckpointDeleted:
    return CheckpointDeleted(time=0.0, storage_id=f"c{number}")


def test_wanted_records_come_in_order_from_anywhere(journal: Path) -> None:
    """Wanted records are found in order in a large file, also where a line crosses the border of two reads."""
    report = encode_line(Report(0.0, "training", 1, {"loss": 0.5})) * 10_000
    wanted: list[Record] = [deleted(number) for number in range(20)]
    journal.write_bytes(b"".join(report + encode_line(record) for record in wanted))

    assert journal.stat().st_size > 16 << 20
    assert list(find_records(journal, ['"checkpoint_deleted"'])) == wanted


def test_a_line_with_several_of_the_texts_comes_once(journal: Path) -> None:
    """A line that has several of the wanted texts is found once, and other lines are not."""
    used = CheckpointUsed(time=0.0, storage_id="checkpoint")
    journal.write_bytes(
        encode_line(ProgressReported(time=0.0, progress=0.5)) + encode_line(used) + encode_line(deleted(1))
    )

    assert list(find_records(journal, ["checkpoint", '"checkpoint_used"', "storage_id"])) == [used, deleted(1)]


def test_a_bad_line_is_told_and_a_torn_one_is_left_out(journal: Path) -> None:
    """A bad line is returned as a problem, and an unfinished last line is left out."""
    bad = b"00000000" + encode_line(deleted(1))[8:]
    journal.write_bytes(bad + encode_line(deleted(2)) + encode_line(deleted(3))[:-1])

    problem, record = find_records(journal, ["checkpoint"])

    assert isinstance(problem, ValueError)
    assert record == deleted(2)


def test_a_missing_journal_is_empty(journal: Path) -> None:
    """A missing journal, as of an attempt whose script never called init(), has no records."""
    assert list(find_records(journal, ["checkpoint"])) == []
