"""What a workspace does not take: full disks, damaged pieces, gaps, and names of other files."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from home.journals import new_trial
from workspace.workspaces import pushed, served

from core_sdk._home import Home
from core_sdk._workspace.files import kind_of
from core_sdk._workspace.receiving import RecordReceiver
from core_sdk._workspace.wire import DamagedRequestError, PieceHead, framed, piece_of, unframed
from core_sdk.errors import WorkspaceUnreachableError


def test_a_full_disk_acknowledges_nothing_and_what_was_acknowledged_stays(home: Home, small_disk: Path) -> None:
    """After room was made, the next push sends the rest."""
    workspace = Home.create(small_disk / "lab")
    folder = new_trial(home)
    lines = b"".join(b"%08x %s\n" % (n, b"x" * 90) for n in range(20_000))
    folder.journal_path(1).write_bytes(lines)
    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * 200_000)

    with served(workspace) as url:
        with pytest.raises(WorkspaceUnreachableError, match="No space left"):
            pushed(home, url)
        there = workspace.folder(1).journal_path(1)
        assert not there.exists() or lines.startswith(there.read_bytes())
        folder.journal_path(1).write_bytes(lines[: 4_000 * 100])
        filler.unlink()
        pushed(home, url)

    assert there.read_bytes() == lines[: 4_000 * 100]


def test_a_piece_beyond_the_end_is_answered_by_the_right_offset(home: Home) -> None:
    """It would leave a gap, so that nothing of it is written."""
    folder = new_trial(home)
    receiver = RecordReceiver(home)

    receiver.receive([piece_of(1, "1.journal", 0, b"abc")])
    answers = receiver.receive([piece_of(1, "1.journal", 7, b"xyz"), piece_of(1, "1.journal", 2, b"cdef")])

    assert [(each.outcome, each.size_bytes) for each in answers.answers] == [("taken", 3), ("taken", 6)]
    assert folder.journal_path(1).read_bytes() == b"abcdef"


def test_a_piece_that_differs_from_what_is_there_is_refused(home: Home) -> None:
    """Also if only the part that has arrived before differs."""
    folder = new_trial(home)
    receiver = RecordReceiver(home)

    receiver.receive([piece_of(1, "1.journal", 0, b"abc")])
    answers = receiver.receive([piece_of(1, "1.journal", 1, b"xcdef")])

    assert answers.answers[0].outcome == "differs"
    assert folder.journal_path(1).read_bytes() == b"abc"


def test_a_piece_with_a_wrong_checksum_is_refused() -> None:
    """The request says which file."""
    head = PieceHead(1, "1.journal", 0, 3, zlib.crc32(b"abc"))

    with pytest.raises(DamagedRequestError, match=r"1\.journal has another content"):
        list(unframed(framed([(head, b"abd")])))


@pytest.mark.parametrize(
    "name",
    [
        "../1/1.journal",
        "trial.json",
        "received.json",
        "1.alive",
        "1.stop",
        "tensorboard/../../2/1.journal",
        "media/x.png",
        "profiles/..",
        "checkpoints/a/../../x",
        "checkpoints/../home.json",
        "checkpoints/./x",
        "code/../../home.json",
        "/etc/passwd",
        "1.journal\n",
    ],
)
def test_other_files_are_not_taken(home: Home, name: str) -> None:
    """Names of other files, and those that leave the trial's folder, are refused."""
    new_trial(home)

    answers = RecordReceiver(home).receive([piece_of(1, name, 0, b"abc")])

    assert kind_of(name) is None
    assert answers.answers[0].outcome == "refused"
