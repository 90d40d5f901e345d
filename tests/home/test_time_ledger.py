"""Where the time of trials went, as the index tells it from journals."""

from __future__ import annotations

import random
from typing import Literal

import msgspec
import pytest
from home.journals import START, append, lines, new_trial, record, started
from hypothesis import given, settings
from hypothesis import strategies as st

from core_sdk._ground.records import CheckpointStored, Ended, ExitRecord, PhaseEnded, Record, Report, Settled
from core_sdk._home import Home, TrialFolder
from core_sdk._home.finding.time_ledger import TimeLedger, brief_duration, ledger, read_ledger
from core_sdk._home.index import Index
from core_sdk._home.rows import TimeRow
from core_sdk._home.states import GOES_ON, WAITS_IN_SLURM
from core_sdk._home.time_spent import TrialTime

FIRST, SECOND = START + 1000, START + 2000
"""When the attempts begin."""


def trained(time: float, steps: int) -> Report:
    return Report(time, "training", steps, {"loss": 0.5})


def saved(time: float, steps: int, saving_s: float | None = None) -> CheckpointStored:
    return CheckpointStored(
        time=time,
        storage_id=f"{steps}",
        storage="home:checkpoints",
        steps_completed=steps,
        metadata={},
        resources={},
        saving_s=saving_s,
    )


def times_of(home: Home) -> list[TimeRow]:
    with Index(home) as index:
        index.refresh()
        return index.times()


def seconds(row: TimeRow) -> dict[str, float]:
    return {name: value / 1000 for name, value in vars(row.time).items() if value}


def killed_and_resumed(home: Home) -> TrialFolder:
    """A trial whose first attempt was killed 40 s after it had saved at step 20; the second went on from there."""
    folder = new_trial(home)
    first: list[Record] = [
        trained(FIRST + 10, 10),
        trained(FIRST + 20, 20),
        saved(FIRST + 22, 20, 2.0),
        trained(FIRST + 32, 30),
    ]
    record(folder, *first)
    folder.write_exit(1, ExitRecord(time=FIRST + 62, code=-9))
    second: list[Record] = [
        trained(SECOND + 15, 30),
        trained(SECOND + 25, 40),
        Ended(time=SECOND + 26, outcome="completed"),
    ]
    record(folder, *second, attempt=2, resumed_steps=20)
    return folder


def test_work_that_was_done_again_is_lost(home: Home) -> None:
    """It is lost from the last checkpoint that counts to the exit that the agent has recorded."""
    killed_and_resumed(home)

    (row,) = times_of(home)

    assert seconds(row) == {"starting": 1005, "training": 41, "saving": 2, "lost": 40, "down": 938}
    assert row.time.wall == 1_000_000 * 2 + 26_000
    assert (row.num_attempts, row.num_failures, row.num_saves, row.saving_ms) == (2, 1, 1, 2000)


@pytest.mark.parametrize(
    ("state", "reason", "phase"),
    [
        ("CANCELED", "killed", "stopped"),
        ("PAUSED", f"{WAITS_IN_SLURM}: job 7", "waiting"),
        ("PAUSED", f"{GOES_ON}: killed by SIGKILL", "down"),
    ],
)
def test_what_was_settled_says_what_follows_an_attempt(home: Home, state: str, reason: str, phase: str) -> None:
    folder = killed_and_resumed(home)
    settled = Settled(time=FIRST + 63, state=state, reason=reason, attempt=1)  # type: ignore[arg-type]
    append(folder, 0, lines(settled))

    (row,) = times_of(home)

    assert seconds(row)[phase] == 938
    assert row.num_failures == (phase == "down")


def test_a_pause_loses_nothing(home: Home) -> None:
    folder = new_trial(home)
    first: list[Record] = [trained(FIRST + 10, 10), trained(FIRST + 20, 20), saved(FIRST + 22, 20, 1.0)]
    record(folder, *first, Ended(time=FIRST + 23, outcome="paused"))
    record(folder, trained(SECOND + 10, 30), attempt=2, resumed_steps=20)

    (row,) = times_of(home)

    assert seconds(row) == {"starting": 1000, "training": 32, "saving": 1, "stopped": 977}


def test_a_script_with_files_of_its_own_loses_what_it_reports_again(home: Home) -> None:
    """Without a checkpoint the time of the last report that counts is known."""
    folder = new_trial(home)
    record(folder, trained(FIRST + 10, 10), trained(FIRST + 20, 20), trained(FIRST + 30, 30))
    record(folder, trained(SECOND + 10, 30), attempt=2, resumed_steps=20)

    (row,) = times_of(home)

    assert seconds(row)["lost"] == 10


def test_a_trial_of_an_older_version_has_a_ledger(home: Home) -> None:
    """What its records do not tell is training."""
    folder = new_trial(home)
    record(folder, trained(FIRST + 10, 10), saved(FIRST + 11, 10), trained(FIRST + 20, 20))

    (row,) = times_of(home)

    assert seconds(row) == {"starting": 1000, "training": 20}
    assert (row.num_checkpoints, row.num_saves) == (1, 0)


STATES: tuple[Literal["CANCELED", "PAUSED", "ERROR"], ...] = ("CANCELED", "PAUSED", "ERROR")


def _random_attempt(generator: random.Random, begin: float, steps: int) -> tuple[list[Record], float]:
    """Returns the records of an attempt that trains, validates and saves at random, and the time of the last one."""
    found: list[Record] = []
    time = begin
    for _ in range(generator.randrange(12)):
        time += generator.expovariate(0.1)
        steps += generator.randrange(10)
        what = generator.randrange(6)
        if what < 3:
            found.append(Report(time, "training", steps, {"loss": 0.5}, loading_s=generator.choice([None, 0.25])))
        elif what == 3:
            found.append(Report(time, "validation", steps, {"loss": 0.5}))
        elif what == 4:
            found.append(saved(time, steps, generator.choice([None, 1.5])))
        else:
            found.append(PhaseEnded(time=time, phase="validation", seconds=generator.uniform(0, 5)))
    if generator.random() < 0.4:
        time += generator.random()
        found.append(Ended(time=time, outcome=generator.choice(["paused", "completed", "error"])))
    return found, time


def write_random_trial(home: Home, seed: int) -> tuple[TrialFolder, int]:
    """Writes a trial that was killed, paused and resumed at random; returns it with its wall time in milliseconds."""
    generator = random.Random(seed)
    folder = new_trial(home)
    time, saved_steps, end = START + generator.uniform(0, 30), 0, START
    created = START
    for number in range(1, generator.randrange(2, 6)):
        begun = started(folder, number, saved_steps)
        begun.time = time
        if generator.random() < 0.5:
            begun.launched = time - generator.uniform(0, 0.1)
            created = min(created, begun.launched)  # the first attempt may have been launched before
        records, end = _random_attempt(generator, time, saved_steps)
        append(folder, number, lines(begun, *records))
        if generator.random() < 0.5:
            end += generator.uniform(0, 20)
            folder.write_exit(number, ExitRecord(time=end, code=generator.choice([0, -9, 1])))
        if generator.random() < 0.3:
            append(folder, 0, lines(Settled(time=end, state=generator.choice(STATES), reason="", attempt=number)))
        steps = [record.steps_completed for record in records if isinstance(record, CheckpointStored)]
        saved_steps = generator.choice([saved_steps, *steps])
        time = end + generator.expovariate(0.02)
    return folder, round(end * 1000) - round(created * 1000)


def test_the_phases_of_random_trials_add_up_to_their_wall_times(home: Home) -> None:
    """Trials that were killed, paused and resumed at random: to the millisecond."""
    walls = [write_random_trial(home, seed)[1] for seed in range(100)]

    rows = times_of(home)

    assert [row.time.wall for row in rows] == walls
    whole = read_whole(home)
    assert whole.time.wall == sum(walls)
    assert sum(vars(whole.time).values()) == sum(walls)


def read_whole(home: Home) -> TimeLedger:
    with Index(home) as index:
        index.refresh()
        return read_ledger(index)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_a_journal_that_is_read_in_parts_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, generator: random.Random
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    folder, wall = write_random_trial(home, seed)
    journals = {number: folder.journal_path(number).read_bytes() for number in folder.attempts()}
    with Index(home) as index:
        for number in journals:
            folder.journal_path(number).write_bytes(b"")
        for number, content in journals.items():
            cut = generator.randrange(len(content))
            append(folder, number, content[:cut])
            index.refresh()
            append(folder, number, content[cut:])
        index.refresh()
        (in_parts,) = index.times()

    Index.rebuild(home)

    assert times_of(home) == [in_parts]
    assert in_parts.time.wall == wall


ROW = TimeRow(
    trial_id=1,
    experiment_id=1,
    time=TrialTime(training=930_000, lost=40_000, saving=6_000, starting=24_000, stopped=9_000_000),
    num_attempts=3,
    num_failures=2,
    attempts_ms=1_000_000,
    work_ms=966_000,
    saving_ms=6_000,
    num_saves=1,
    num_checkpoints=1,
)


def test_the_words_say_where_the_time_went_and_how_often_to_save() -> None:
    words = ledger([ROW], [ROW]).words()

    assert words == (
        "93 % training; 4.0 % lost to 2 failures; 2.4 % starting; "
        "saving costs 0.6 %: save every 1.2 min instead of 16 min"
    )


def test_an_interval_that_is_good_enough_is_not_spoken_of() -> None:
    row = msgspec.structs.replace(ROW, num_checkpoints=12, num_saves=12, saving_ms=72_000)

    assert ledger([row], [row]).words().endswith("saving costs 0.6 %")


def test_a_trial_that_never_failed_is_judged_by_the_home(home: Home) -> None:
    for _ in range(3):
        killed_and_resumed(home)
    folder = new_trial(home)
    record(folder, trained(FIRST + 10, 10), trained(FIRST + 20, 20), saved(FIRST + 22, 20, 2.0))
    append(folder, 1, lines(Ended(time=FIRST + 23, outcome="completed")))

    with Index(home) as index:
        index.refresh()
        own, first = read_ledger(index, trial_id=folder.trial_id), read_ledger(index, trial_id=1)

    assert own.are_failures_of_home and first.are_failures_of_home
    assert own.num_failures == 0
    assert own.best_interval_s is not None


def test_a_home_without_trials_has_an_empty_ledger(home: Home) -> None:
    Home.create(home.root)

    found = read_whole(home)

    assert (found.time.wall, found.words()) == (0, "0 % training")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (12.0, "12 s"), (90.0, "1.5 min"), (540.0, "9 min"), (7200.0, "2 h"), (864000.0, "10 d")],
)
def test_durations_are_brief(seconds: float, text: str) -> None:
    assert brief_duration(seconds) == text
