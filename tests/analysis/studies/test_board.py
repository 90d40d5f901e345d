"""A study is told in 2 KB, and what matters is never left out."""

from __future__ import annotations

import random

from home.tries import study, trials_of_try

from core_sdk._analysis.studies._alarms import about_values, is_elsewhere, study_alarms
from core_sdk._analysis.studies._board import (
    MOST_BYTES,
    Board,
    board_line,
    board_text,
    difference_text,
    num_lucky,
    state_text,
    value_text,
)
from core_sdk._ground.records import CodeRecord
from core_sdk._home.finding.tries import Tries


def board_of(tries: Tries) -> Board:
    best, lines = tries.best, [board_line(tries, one) for one in tries.by_id.values()]
    return Board(
        experiment_id=1, study="digits", metric="accuracy", smaller_is_better=False,
        best=best.try_id if best else None, best_line=[one.try_id for one in tries.line_of(best)],
        num_tries=len(tries.by_id), num_failed=0, num_running=0, num_trials=3 * len(tries.by_id), elapsed_s=7200.0,
        noise=tries.pooled.spread if tries.pooled else None, num_lucky=num_lucky(lines), alarms=study_alarms(tries),
        tries=lines,
    )  # fmt: skip


def test_a_line_says_what_a_try_was_worth() -> None:
    """Id, number of values, mean and spread, the difference with its mark, verdict and hypothesis."""
    tries = study(
        trials_of_try(1, [0.80, 0.81, 0.82], hypothesis="as it is"),
        trials_of_try(4, [0.88, 0.89, 0.90], parent=1, hypothesis="wider", verdict="keep"),
        trials_of_try(7, [0.89, None, 0.90], parent=4, hypothesis="deeper", reason="killed by SIGKILL"),
    )

    assert board_text(board_of(tries)).split("\n") == [
        "digits: accuracy, larger is better; 3 tries, 9 trials, in 2.0 h, noise 0.0095",
        "best: 1 > 4",
        "1  n=3  0.810 ± 0.010  as it is",
        "4*  n=3  0.890 ± 0.010  +0.080 ± 0.020 beyond noise better  keep  wider",
        "7  n=2  0.8950 ± 0.0071  +0.005 ± 0.022 within noise  failed (killed by SIGKILL)  deeper",
    ]


def test_a_thousand_tries_are_told_in_two_kilobytes() -> None:
    """The best and what helped are shown, however long ago; what is left out is counted."""
    draw = random.Random(1)
    first = trials_of_try(1, [0.80, 0.81, 0.82], hypothesis="as it is")
    best = trials_of_try(10, [0.98, 0.99, 0.985], parent=1, hypothesis="the one that helped")
    others = [
        trials_of_try(20 + 3 * number, [draw.gauss(0.8, 0.01) for _ in range(3)], parent=1, hypothesis="ä" * 200)
        for number in range(1000)
    ]

    text = board_text(board_of(study(first, best, *others)))

    assert len(text.encode()) <= MOST_BYTES
    assert "10*  n=3" in text
    assert "the one that helped" in text
    assert "\n1  n=3" in text
    assert text.endswith(f"({1002 - text.count('  n=')} tries left out)")


def test_values_have_the_digits_of_their_spread() -> None:
    """Two figures of the spread are shown, and as many digits of the value."""
    tries = study(trials_of_try(1, [1234.5, 1250.0]), trials_of_try(3, [0.00123, 0.00125]), trials_of_try(5, [0.5]))
    lines = [board_line(tries, one) for one in tries.by_id.values()]

    assert list(map(value_text, lines)) == ["1242 ± 11", "0.001240 ± 0.000014", "0.5"]
    assert difference_text(lines[0]) == ""


def test_seeds_that_differ_more_than_tries_are_an_alarm() -> None:
    """Then no single try can be told from the others."""
    tries = study(*(trials_of_try(number, [0.1, 0.9]) for number in (1, 3, 5)))

    assert study_alarms(tries) == ["its seeds differ more than its tries: more seeds would tell more"]


def test_an_alarm_names_what_makes_a_value_worth_less() -> None:
    """A twin, seeds without an effect, a metric that is missing and a parent that is gone."""
    tries = study(
        trials_of_try(1, [0.8, 0.9]),
        trials_of_try(3, [0.8, 0.9], parent=1),
        trials_of_try(5, [0.7, 0.7], parent=99),
        trials_of_try(7, [None, None], state="COMPLETED"),
    )

    told = {one.try_id: list(about_values(tries, one)) for one in tries.by_id.values()}

    assert told == {
        1: [],
        3: ["exactly the values of 1: the change does nothing"],
        5: ["its parent 99 was deleted", "its seeds gave the same value: it does not use the trial's seed"],
        7: ["accuracy not reported by trial 7, trial 8"],
    }


def test_files_outside_of_the_copy_and_linked_ones_are_elsewhere() -> None:
    """What a trial imported from its own copy is the code of the try, also above the directory of its command."""
    code = CodeRecord(sha256="a" * 64, directory="sub", linked=["data", "sub/local"])
    names = [
        "part.py",
        "../common.py",
        "../../../elsewhere/package.py",
        "../data/names.py",
        "local/mine.py",
        "locals.py",
    ]

    assert [name for name in names if is_elsewhere(name, code)] == [
        "../../../elsewhere/package.py",
        "../data/names.py",
        "local/mine.py",
    ]


def test_a_reason_is_told_in_few_words() -> None:
    """It ends at its first comma, and names the step."""
    reason = "behind its parent 1 at step 7, beyond noise"
    tries = study(trials_of_try(1, [0.8, 0.81]), trials_of_try(3, [0.5], parent=1, state="PAUSED", reason=reason))

    assert board_text(board_of(tries)).endswith("3  n=0  0.5  stopped (behind its parent 1 at step 7)")


def test_a_try_that_waits_names_the_machine_of_its_slots() -> None:
    """Several machines may share a home, and each runs the tries that were begun on it."""
    tries = study(trials_of_try(1, [None], hypothesis="wider", state="QUEUED"))
    (one,) = tries.by_id.values()

    told = [state_text(board_line(tries, one, waits_on=host)) for host in ("gpu7", "")]

    assert told == ["queued on gpu7", "queued"]
