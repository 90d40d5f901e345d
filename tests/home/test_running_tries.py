"""A try that still runs is compared with its parent at the same step, and says how long it takes."""

from __future__ import annotations

import pytest
from home.journals import new_trial, record, report
from home.tries import ACCURACY, trials_of_try

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import CodeRecord, Settled
from core_sdk._home import Home, open_view
from core_sdk._home.finding.running import read_running, share_done, time_left
from core_sdk._home.finding.tries import read_tries


@pytest.mark.parametrize(
    ("spent_s", "share", "budget_s", "expected"),
    [
        (30.0, 0.25, None, 90.0),
        (30.0, 0.25, 60.0, 30.0),
        (30.0, None, 90.0, 60.0),
        (30.0, 0.0, None, None),
        (100.0, 0.5, 90.0, 0.0),
        (30.0, 1.0, None, 0.0),
    ],
)
def test_the_time_left_is_that_of_the_pace_within_the_budget(
    spent_s: float, share: float | None, budget_s: float | None, expected: float | None
) -> None:
    """Whatever ends it first counts; without either nothing is known."""
    assert time_left(spent_s, share, budget_s) == expected


def test_what_is_done_is_told_by_the_trial_or_by_the_usual_steps() -> None:
    """Its own progress counts, or else its steps among those that a trial of its kind usually has."""
    fields = {"state": "ACTIVE", "steps_completed": 30}
    (told,) = trials_of_try(1, [0.5], progress=0.7, **fields)
    (silent,) = trials_of_try(1, [0.5], **fields)
    (waits,) = trials_of_try(1, [None], state="QUEUED")
    (over,) = trials_of_try(1, [0.5])

    assert [share_done(each, 40) for each in (told, silent, waits, over)] == [0.7, 0.75, 0.0, 1.0]
    assert share_done(silent, None) is None


def test_a_running_try_is_compared_at_its_step(home: Home) -> None:
    """What its parent reached later does not count, and neither does what the noise is at the end."""
    curves = {1: [0.1, 0.5, 0.9], 2: [0.12, 0.52, 0.7], 3: [0.4, 0.6], 4: [0.42, 0.62, 0.63]}
    for trial_id, values in curves.items():
        folder = new_trial(home)
        trial = folder.read_record()
        trial.try_id, trial.seed = (1, trial_id - 1) if trial_id < 3 else (3, trial_id - 3)
        trial.parent, trial.code = (None if trial_id < 3 else 1), CodeRecord(sha256="a" * 64)
        folder.write_record(trial)
        told = [report(10 * (n + 1), "validation", accuracy=value) for n, value in enumerate(values)]
        record(folder, *told)
        if trial_id != 3:
            folder.append_change(Settled(time=2e9, state="COMPLETED", reason="", attempt=1))
    lock = AliveLock(home.folder(3).alive_path(1))  # so that trial 3 runs

    with open_view(home) as view:
        tries = read_tries(view, 1, ACCURACY)
        found = read_running(view, tries, tries.by_id[3], budget_s=None)
    lock.release()

    assert found.step == 20
    assert found.sample is not None
    assert found.sample.values == (0.6, 0.62)
    assert found.to_parent is not None
    assert (round(found.to_parent.value, 6), found.to_parent.mark) == (0.1, "beyond noise")
