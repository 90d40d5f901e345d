"""Studies from Python: the verbs are those of the commands, with their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_sdk.client import Study, Tracker
from core_sdk.errors import AlreadyTriedError, StudyNotFoundError


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study of a directory with a script, in which the process is."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("RATE = 0.1\n")
    monkeypatch.chdir(work)
    tracker = Tracker(tmp_path / "home")
    return tracker.begin_study("rates", "accuracy", smaller_is_better=False, command=["true"], num_seeds=1)


def test_a_try_is_begun_awaited_decided_and_compared(study: Study) -> None:
    """What has ended is told by its line of the board, and its code by its difference to that of its parent."""
    first = study.try_("as it is")
    Path("train.py").write_text("RATE = 0.2\n")
    second = study.try_("a larger rate", author="ann")
    lines = study.wait(first, second)
    study.discard(second, "no value", restore_in=".")
    study.check_out(second, "copy")

    assert [(line.state, line.parent) for line in lines] == [("ended", None), ("ended", first)]
    assert "+RATE = 0.2" in study.code(second)
    assert study.code(second, diff=second) == ""
    assert (Path("train.py").read_text(), Path("copy/train.py").read_text()) == ("RATE = 0.1\n", "RATE = 0.2\n")
    assert [(line.author, line.verdict) for line in study.board().tries][1] == ("ann", "discard")
    assert f"{second}  n=0  no value  discard  a larger rate" in str(study)


def test_what_was_tried_is_an_error_that_names_it(study: Study) -> None:
    """Nothing is begun then, unless it is asked for again."""
    first = study.try_("as it is")
    with pytest.raises(AlreadyTriedError, match=f"tried as {first}") as refused:
        study.try_("as it is")
    again = study.try_("as it is", again=True)

    assert (refused.value.try_id, again) == (first, first)
    assert len(study.wait(first)) == 1
    assert [line.num_seeds for line in study.board().tries] == [2]


def test_unknown_studies_and_tries_are_errors(study: Study, tmp_path: Path) -> None:
    """The study of a directory is found there, and no other one."""
    tracker = Tracker(tmp_path / "home")

    assert tracker.get_study().name == tracker.get_study("rates").name == "rates"
    for ask in (lambda: tracker.get_study("letters"), lambda: study.wait(7)):
        with pytest.raises(StudyNotFoundError):
            ask()
