"""Authors take the slots of a machine by turns."""

from __future__ import annotations

from pathlib import Path

from core_sdk._execution.studies._line import TrialInLine, host_of_wait, next_in_turn, write_waiting
from core_sdk._home import Home


def waiting(trial_id: int, author: str, *, is_started: bool = False) -> TrialInLine:
    return TrialInLine(trial_id=trial_id, host="here", author=author, num_slots=1, is_started=is_started)


def order(line: list[TrialInLine]) -> list[int]:
    """Returns the trials in the order in which they get slots, if none of them ends meanwhile."""
    found = []
    while (first := next_in_turn(line)) is not None:
        found.append(first.trial_id)
        line = [waiting(each.trial_id, each.author, is_started=each.is_started or each is first) for each in line]
    return found


def test_authors_take_turns() -> None:
    """Who came later does not wait for all that another one has in the line."""
    line = [*(waiting(number, "ann") for number in (1, 2, 3, 4)), waiting(5, "bob"), waiting(6, "bob")]

    assert order(line) == [1, 5, 2, 6, 3, 4]


def test_what_runs_counts() -> None:
    """An author whose trials run already comes after one who has none."""
    line = [waiting(1, "ann", is_started=True), waiting(2, "ann"), waiting(3, "bob")]

    assert order(line) == [3, 2]


def test_nobody_is_next_in_an_empty_line() -> None:
    """Trials that run wait for nothing."""
    assert next_in_turn([waiting(1, "ann", is_started=True)]) is None


def test_a_trial_that_waits_names_its_machine(tmp_path: Path) -> None:
    """One that runs waits for none, and neither does one that is in no line."""
    home = Home.create(tmp_path)
    write_waiting(home, waiting(1, "ann", is_started=True))
    write_waiting(home, waiting(2, "ann"))

    assert [host_of_wait(home, trial_ids) for trial_ids in ([1, 2, 3], [1], [3], [])] == ["here", "", "", ""]
