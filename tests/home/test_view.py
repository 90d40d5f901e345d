"""What a view of a home answers, and what its folders do while a trial runs."""

from __future__ import annotations

import pytest
from home.journals import START, append, lines, new_trial, record, report

from core_sdk._execution.steering import trials
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Alert, Ended, Settled, TrialArchivedSet
from core_sdk._home import Home, View, open_view
from core_sdk._home.attempts.running import attempt_rows
from core_sdk._home.rows import Figures, Reading, StreamPosition
from core_sdk._home.streams import read_reports
from core_sdk.errors import (
    TrialNotFoundError,
    TrialNotRunningError,
)


def test_reports_are_read_in_stretches_that_lose_and_double_none(home: Home) -> None:
    """A reader that goes on from the end of each stretch sees each report once, over all attempts."""
    folder = new_trial(home)
    record(folder, report(1, loss=1.0), report(2, loss=0.5))
    steps, position = [], StreamPosition()

    def read() -> None:
        nonlocal position
        while (stretch := read_reports(home.trial(folder.trial_id), position)).end != position:
            steps.extend([(row.attempt, row.steps_completed) for row in stretch.reports])
            position = stretch.end

    read()
    append(folder, 1, lines(report(3, loss=0.25)) + b"half a li")
    read()
    record(folder, report(4, loss=0.125), attempt=2, resumed_steps=3)
    read()

    assert steps == [(1, 1), (1, 2), (1, 3), (2, 4)]


def test_a_damaged_value_is_left_out_of_a_stretch(home: Home) -> None:
    """A report with a damaged value is left out, and the others are read."""
    folder = new_trial(home)
    record(folder, report(1, loss="nonsense"), report(2, loss=0.5))

    rows = read_reports(home.trial(folder.trial_id), StreamPosition()).reports

    assert [(row.steps_completed, row.metrics) for row in rows] == [(2, {"loss": 0.5})]


def test_a_long_answer_comes_in_pages(home: Home) -> None:
    """The pages of a long answer together are all reports, in the order of the steps."""
    folder = new_trial(home)
    record(folder, *(report(step, loss=1.0) for step in range(60_000)))

    with open_view(home) as view:
        first = view.report_page(folder.trial_id)
        assert first.next_after is not None
        rest = view.report_page(folder.trial_id, after=first.next_after)

    assert rest.next_after is None
    assert [row.steps_completed for row in first.reports + rest.reports] == list(range(60_000))


def test_a_log_is_read_from_an_offset(home: Home) -> None:
    """A log is read from an offset, and reading at its end or without a log gives nothing."""
    folder = new_trial(home)
    record(folder)
    folder.log_path(1).write_bytes(b"first\nsecond\n")

    assert home.trial(folder.trial_id).read_log(1, 0, 5) == b"first"
    assert home.trial(folder.trial_id).read_log(1, 6, 100) == b"second\n"
    assert home.trial(folder.trial_id).read_log(1, 13, 100) == b""
    assert home.trial(folder.trial_id).read_log(2, 0, 100) == b""


def test_attempts_tell_what_runs_and_what_was_kept(home: Home) -> None:
    """attempt_rows() tells running attempts and log sizes, and only a running one can be paused."""
    folder = new_trial(home)
    record(folder)
    folder.log_path(1).write_bytes(b"words")
    with pytest.raises(TrialNotRunningError):
        trials.pause(home, folder.trial_id, "test")

    record(folder, attempt=2)
    alive = AliveLock(folder.alive_path(2))
    assert trials.pause(home, folder.trial_id, "test").attempt == 2
    first, second = attempt_rows(home.trial(folder.trial_id))
    request = home.folder(folder.trial_id).read_stop_request(2)
    alive.release()

    assert (first.is_running, first.log_size_bytes) == (False, 5)
    assert (second.is_running, second.log_size_bytes) == (True, None)
    assert request is not None
    assert request.source == "test"


def test_an_unknown_trial_is_named_by_every_call(home: Home) -> None:
    """An unknown trial raises an error in every call."""
    with pytest.raises(TrialNotFoundError):
        attempt_rows(home.trial(7))
    with pytest.raises(TrialNotFoundError):
        read_reports(home.trial(7), StreamPosition())


def test_the_figures_of_all_trials_come_in_one_answer(home: Home) -> None:
    """The last value is that at the highest step; nothing counts behind which a later attempt went back."""
    folder = new_trial(home)
    record(folder, report(1, loss=1.0), report(2, loss=0.5), report(2, "validation", accuracy=0.9))
    record(folder, report(2, loss=0.25), attempt=2, resumed_steps=1)
    record(new_trial(home), report(7, loss=7.0))
    new_trial(home)

    with open_view(home) as view:
        figures = view.figures()

    assert figures == {
        1: {"training": {"loss": Figures(last=0.25, minimum=0.25, maximum=1.0)}},
        2: {"training": {"loss": Figures(last=7.0, minimum=7.0, maximum=7.0)}},
    }


def test_trials_are_told_apart_without_their_rows(home: Home) -> None:
    """Ids of listed and of waiting trials are those of the rows, after each change from outside."""
    ended = Ended(time=START, outcome="paused")
    for number in range(1, 7):
        record(new_trial(home, "digits" if number < 4 else "other"), ended)
    never_begun = new_trial(home)

    def change(trial_id: int, *changes: TrialArchivedSet | Settled) -> None:
        append(home.folder(trial_id), 0, lines(*changes))

    def archived(attempt: int | None) -> TrialArchivedSet:
        return TrialArchivedSet(time=START, attempt=attempt)

    def waits(attempt: int, reason: str = "waits in Slurm's queue") -> Settled:
        return Settled(time=START, state="PAUSED", reason=reason, attempt=attempt)

    def asked(view: View) -> tuple[list[int], list[int]]:
        rows = view.trials()
        listed, waiting = view.trial_ids(which="listed"), view.trial_ids(which="waiting")
        assert view.trial_ids() == [row.trial_id for row in rows]
        assert listed == [row.trial_id for row in rows if not row.is_archived]
        assert {row.trial_id for row in rows if row.state == "QUEUED"} <= set(waiting)
        for one in (1, 2):
            of_experiment = [row.trial_id for row in rows if row.experiment_id == one]
            assert view.trial_ids(one) == of_experiment
            assert view.trial_ids(one, "listed") == [each for each in listed if each in of_experiment]
        return listed, waiting

    with open_view(home) as view:
        first = asked(view)
        change(2, archived(1))
        change(3, archived(1), archived(None))
        change(4, archived(1), waits(1, "killed by me"))
        change(5, waits(1, "waits for slots: 2"))
        change(never_begun.trial_id, waits(0), archived(0))
        view.refresh()
        second = asked(view)
        record(home.folder(4), ended, attempt=2)
        record(never_begun, ended)
        home.folder(6).record_path.unlink()
        view.refresh()
        third = asked(view)

    assert first == ([1, 2, 3, 4, 5, 6, 7], [])
    assert second == ([1, 3, 5, 6], [5, 7])
    assert third == ([1, 3, 4, 5, 7], [5, 7])


def test_alerts_are_at_the_step_of_the_report_before_them(home: Home) -> None:
    """An alert has the step of the last report before it; a resume supersedes alerts beyond its step."""
    folder = new_trial(home)
    begin, low, high = (Alert(time=number, title=str(number), description="", level="warn") for number in range(3))
    record(folder, begin, report(40, loss=1.0), low, report(60, loss=0.5))
    with open_view(home) as view:
        first = [(one.title, one.steps_completed) for one in view.alerts(1)]
    append(folder, 1, lines(high))
    record(folder, Alert(time=9.0, title="again", description="it goes on", level="info"), attempt=2, resumed_steps=40)

    with open_view(home) as view:
        found = view.alerts(folder.trial_id)

    assert first == [("0", 0), ("1", 40)]
    assert [(one.attempt, one.title, one.steps_completed, one.is_superseded) for one in found] == [
        (1, "0", 0, False),
        (1, "1", 40, False),
        (1, "2", 60, True),
        (2, "again", 40, False),
    ]


def test_how_far_the_records_are_read_is_told(home: Home) -> None:
    """Progress is reported per trial; a callback that raises ends the reading, and the next view goes on."""
    for _ in range(3):
        record(new_trial(home), report(1, loss=1.0), report(2, loss=0.5))
    first, second = list[Reading](), list[Reading]()

    def end_at_the_second(reading: Reading) -> None:
        first.append(reading)
        if reading.num_read == 1:
            raise RuntimeError

    with pytest.raises(RuntimeError), open_view(home, end_at_the_second):
        pass
    with open_view(home, second.append) as view:
        steps = [row.steps_completed for row in view.trials()]

    assert first[-1] == Reading(num_read=1, num_trials=3, num_points=2)
    assert Reading(num_read=2, num_trials=3, num_points=6) in second
    assert steps == [2, 2, 2]
