"""The state of a trial: told from its newest attempt, and from whether that lives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from home.journals import START, age, append, lines, new_trial, record, report, started
from processes import Script, wait_for

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Ended, ExitRecord, Outcome, StopAcknowledged
from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk._home.rows import TrialState
from core_sdk._home.states import AttemptEnd, experiment_state, trial_state


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (AttemptEnd(outcome="completed"), ("COMPLETED", "")),
        (AttemptEnd(outcome="completed", exit_code=0), ("COMPLETED", "")),
        (
            AttemptEnd(outcome="completed", exit_code=7),
            ("ERROR", "its process exited with status 7, after it had left its Context"),
        ),
        (AttemptEnd(outcome="completed", exit_code=-9), ("ERROR", "killed by SIGKILL, after it had left its Context")),
        *((AttemptEnd(outcome="completed", exit_code=code), ("COMPLETED", "")) for code in (-15, 143, -10)),
        (
            AttemptEnd(outcome="completed", exit_code=75),
            ("ERROR", "its process exited with status 75, after it had left its Context"),
        ),
        (AttemptEnd(outcome="completed", exit_code=1, num_dropped=3), ("COMPLETED", "")),
        (AttemptEnd("paused", None, "SIGTERM", 1, num_dropped=3), ("PAUSED", "SIGTERM")),
        (
            AttemptEnd(outcome="completed", exit_code=7, num_dropped=3),
            ("ERROR", "its process exited with status 7, after it had left its Context"),
        ),
        *((AttemptEnd(outcome="exited", exit_code=code), ("COMPLETED", "")) for code in (None, 0, -15)),
        *((AttemptEnd("exited", None, "user", code), ("PAUSED", "user")) for code in (None, 0, 75)),
        *(
            (AttemptEnd(outcome="exited", exit_code=code), ("ERROR", f"its process exited with status {code}"))
            for code in (1, 3, 75, 143)
        ),
        *((AttemptEnd("paused", None, "SIGTERM", code), ("PAUSED", "SIGTERM")) for code in (0, 75, -15, 143, -10)),
        *((AttemptEnd("paused", None, "Ctrl-C", code), ("PAUSED", "Ctrl-C")) for code in (0, 75, -2, 130)),
        (
            AttemptEnd("paused", None, "SIGTERM", 1),
            ("PAUSED", "SIGTERM; its process exited with status 1, after it had left its Context"),
        ),
        (AttemptEnd(outcome="invalid_hp", exit_code=1), ("COMPLETED", "invalid hyperparameters")),
        (AttemptEnd(outcome="error", error="ValueError: bad\n", exit_code=0), ("ERROR", "ValueError: bad")),
        *(
            (end, ("CANCELED", "interrupted by Ctrl-C, or SIGINT"))
            for end in (
                AttemptEnd(outcome="canceled"),
                AttemptEnd(outcome="canceled", exit_code=1),
                AttemptEnd(exit_code=-2),
                AttemptEnd(exit_code=130),
                AttemptEnd(outcome="completed", exit_code=-2),
            )
        ),
        (AttemptEnd(outcome="paused", stop_source="SIGTERM"), ("PAUSED", "SIGTERM")),
        (AttemptEnd(outcome="paused"), ("PAUSED", "")),
        (AttemptEnd(outcome="invalid_hp", error="too large"), ("COMPLETED", "invalid hyperparameters: too large")),
        (AttemptEnd(outcome="invalid_hp"), ("COMPLETED", "invalid hyperparameters")),
        (AttemptEnd(outcome="error", error="Traceback:\n  …\nValueError: bad\n"), ("ERROR", "ValueError: bad")),
        (AttemptEnd(exit_code=0), ("COMPLETED", "")),
        (AttemptEnd(exit_code=75), ("ERROR", "its process exited with status 75")),
        (AttemptEnd(exit_code=75, stop_source="deadline"), ("PAUSED", "deadline")),
        (AttemptEnd(exit_code=0, stop_source="deadline"), ("PAUSED", "deadline")),
        (AttemptEnd(exit_code=1, stop_source="deadline"), ("ERROR", "its process exited with status 1")),
        (AttemptEnd(exit_code=-9), ("ERROR", "killed by SIGKILL")),
        (AttemptEnd(exit_code=-99), ("ERROR", "killed by signal 99")),
        (AttemptEnd(), ("ERROR", "its process ended without a word")),
    ],
)
def test_the_end_of_an_attempt_tells_the_state(end: AttemptEnd, state: tuple[TrialState, str]) -> None:
    """The attempt's own record decides the state, and otherwise the exit of its process."""
    assert trial_state(end, is_running=False) == state


def test_an_attempt_that_runs_is_active_until_its_last_word() -> None:
    """A running attempt is active until it has recorded its end."""
    assert trial_state(AttemptEnd(stop_source="SIGTERM"), is_running=True) == ("ACTIVE", "")
    assert trial_state(AttemptEnd(outcome="completed"), is_running=True) == ("COMPLETED", "")


@pytest.mark.parametrize(
    ("trials", "state"),
    [
        ({"ACTIVE", "PAUSED", "ERROR", "COMPLETED"}, "ACTIVE"),
        ({"PAUSED", "ERROR", "COMPLETED"}, "PAUSED"),
        ({"ERROR", "CANCELED", "COMPLETED"}, "ERROR"),
        ({"CANCELED", "COMPLETED"}, "CANCELED"),
        ({"COMPLETED"}, "COMPLETED"),
        (set(), "COMPLETED"),
    ],
)
def test_the_most_urgent_state_of_its_trials_is_the_experiments(trials: set[TrialState], state: TrialState) -> None:
    """An experiment's state is the most urgent of its trials, in which running comes before failed."""
    assert experiment_state(trials) == state


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        ("completed", "COMPLETED"),
        ("paused", "PAUSED"),
        ("canceled", "CANCELED"),
        ("invalid_hp", "COMPLETED"),
        ("error", "ERROR"),
    ],
)
def test_the_newest_attempt_counts(home: Home, outcome: Outcome, state: TrialState) -> None:
    """The newest attempt decides the state of the trial."""
    folder = new_trial(home)
    record(folder, Ended(time=START, outcome="error", error="first"))
    record(folder, StopAcknowledged(time=START, source="user"), Ended(time=START + 5, outcome=outcome), attempt=2)
    with Index(home) as index:
        index.refresh()

        assert (index.trial(1).state, index.trial(1).ended) == (state, START + 5)
        assert [row.state for row in index.experiments()] == [state]


def test_a_trial_without_attempts_has_not_begun(home: Home) -> None:
    """A trial without attempts is an error."""
    new_trial(home)
    with Index(home) as index:
        index.refresh()

        assert (index.trial(1).state, index.trial(1).reason) == ("ERROR", "no attempt has begun")


def test_an_attempt_that_is_being_started_is_active(home: Home) -> None:
    """An attempt whose run info and lock exist is active before it has a journal."""
    folder = new_trial(home)
    folder.run_info_path(1).write_text("{}")
    supervised = AliveLock(folder.supervised_path(1))
    with Index(home) as index:
        index.refresh()

        before = index.trial(1)
        supervised.release()

        assert (before.state, before.ended, before.num_attempts) == ("ACTIVE", None, 1)
        assert index.trial(1).state == "ERROR"


def test_a_killed_script_is_active_until_it_is_killed(home: Home, start_script: Callable[..., Script]) -> None:
    """A trial counts as running until its process is killed, without a refresh of the index."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5))
    script = start_script(
        """
        import signal
        import sys
        from pathlib import Path
        from core_sdk._ground.alive import AliveLock

        lock = AliveLock(Path(sys.argv[1]))
        print("alive")
        signal.pause()
        """,
        str(folder.alive_path(1)),
    )
    script.read_until("alive")
    with Index(home) as index:
        index.refresh()
        before = index.trial(1)
        script.process.kill()
        wait_for(lambda: index.trial(1).state != "ACTIVE")

        after = index.trial(1)

        assert (before.state, before.ended) == ("ACTIVE", None)
        assert (after.state, after.reason) == ("ERROR", "its process ended without a word")
        assert after.ended == report(1).time


def test_last_words_written_after_the_refresh_are_heard(home: Home) -> None:
    """A process that said "completed" and went, between our look at its journal and our look at its lock."""
    folder = new_trial(home)
    alive = AliveLock(folder.alive_path(1))
    append(folder, 1, lines(started(folder)))
    age(folder)
    with Index(home) as index:
        index.refresh()
        before = index.trial(1)
        append(folder, 1, lines(Ended(time=START, outcome="completed")))
        alive.release()

        assert before.state == "ACTIVE"
        assert index.trial(1).state == "COMPLETED"


def test_the_exit_status_of_a_supervised_script_is_the_reason(home: Home) -> None:
    """If the script recorded no end, the exit status that `core-sdk run` saw is the reason."""
    folder = new_trial(home)
    record(folder)
    folder.write_exit(1, ExitRecord(time=START + 7, code=-9))
    with Index(home) as index:
        index.refresh()

        row = index.trial(1)

        assert (row.state, row.reason, row.ended) == ("ERROR", "killed by SIGKILL", START + 7)
