"""The output of a trial is read as one text, while it is written too."""

from __future__ import annotations

import threading

import pytest
from client.trainings import Train, Training
from processes import wait_for

from core_sdk.client import Tracker


def write_log(training: Training, content: bytes) -> None:
    with training.folder.log_path(training.attempt).open("ab") as file:
        file.write(content)


@pytest.fixture
def two_attempts(train: Train) -> Training:
    """The second still runs, and is in the middle of a line."""
    first = train()
    write_log(first, b"one\nTwo\nthree without an end")
    first.die()
    train(folder=first.folder).die()
    third = train(folder=first.folder)
    write_log(third, b"four\ntwo again\nfi")
    return third


def test_the_output_of_all_attempts_is_one_text(tracker: Tracker, two_attempts: Training) -> None:
    """The output of all attempts is joined, with each line ended; attempts without output are skipped."""
    lines = list(tracker.get_trial(1).iter_logs())

    assert lines == ["one\n", "Two\n", "three without an end\n", "four\n", "two again\n", "fi\n"]


def test_lines_are_chosen(tracker: Tracker, two_attempts: Training) -> None:
    """Log lines can be chosen: the first, the last, and those that contain a text in upper or lower case."""
    trial = tracker.get_trial(1)

    assert list(trial.iter_logs(head=2)) == ["one\n", "Two\n"]
    assert list(trial.iter_logs(tail=2)) == ["two again\n", "fi\n"]
    assert list(trial.iter_logs(tail=0)) == []
    assert list(trial.iter_logs(search_text="TWO")) == ["Two\n", "two again\n"]
    assert list(trial.iter_logs(search_text="two", head=1)) == ["Two\n"]
    assert list(trial.iter_logs(search_text="two", tail=1)) == ["two again\n"]


def test_a_line_that_is_not_text_harms_no_other(tracker: Tracker, train: Train) -> None:
    """Bad bytes are replaced; a carriage return or a form feed does not end a line."""
    write_log(train(), b"a\xffb\n50%\r100%\nx\x0cy\xe2\x80\xa8z\n")

    lines = list(tracker.get_trial(1).iter_logs())

    assert lines == ["a\ufffdb\n", "50%\r100%\n", "x\x0cy\u2028z\n"]


def test_a_trial_without_output_has_no_lines(tracker: Tracker, train: Train) -> None:
    """A trial that was not started by `core-sdk run` has no lines."""
    train()

    assert list(tracker.get_trial(1).iter_logs()) == []


def test_output_is_followed_to_the_trials_end(tracker: Tracker, two_attempts: Training) -> None:
    """follow=True yields whole lines as they come, and the rest when the trial ends."""
    seen: list[str] = []
    lines = tracker.get_trial(1).iter_logs(follow=True, tail=3)
    following = threading.Thread(target=lambda: seen.extend(lines))

    following.start()
    wait_for(lambda: seen == ["three without an end\n", "four\n", "two again\n"])
    write_log(two_attempts, b"ve\n")
    wait_for(lambda: seen[3:] == ["five\n"])
    write_log(two_attempts, b"six\nseven")
    two_attempts.end()
    following.join(timeout=30)

    assert seen[3:] == ["five\n", "six\n", "seven\n"]


def test_following_ends_with_the_lines_that_were_asked_for(tracker: Tracker, two_attempts: Training) -> None:
    """follow=True ends after the number of lines that `head` asks for."""
    lines = tracker.get_trial(1).iter_logs(follow=True, head=1, search_text="two")

    assert list(lines) == ["Two\n"]


def test_what_contradicts_itself_is_refused_at_the_call(tracker: Tracker, train: Train) -> None:
    """Contradictory arguments, and those that plain logs cannot answer, are refused at the call."""
    train()
    trial = tracker.get_trial(1)

    with pytest.raises(ValueError, match="head and tail exclude each other"):
        trial.iter_logs(head=1, tail=1)
    with pytest.raises(ValueError, match="tail is -1"):
        trial.iter_logs(tail=-1)
    with pytest.raises(ValueError, match="rank_ids"):
        trial.iter_logs(rank_ids=[0, -1])
    with pytest.raises(ValueError, match="None for the whole output"):
        trial.iter_logs(rank_ids=[])
    for argument in ("timestamp_before", "timestamp_after", "sources", "stdtypes", "container_ids"):
        with pytest.raises(TypeError, match=argument):
            trial.iter_logs(**{argument: None})  # type: ignore[arg-type]
