"""Each millisecond of a trial belongs to one phase, whatever its records say."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core_sdk._ground.records import (
    AttemptStarted,
    CheckpointStored,
    Ended,
    PhaseEnded,
    ProgressReported,
    Record,
    Report,
)
from core_sdk._home.time_spent import AttemptClock, AttemptSpan, Gap, TimeMark, TrialTime, trial_time


def started(time: float, **more: Any) -> AttemptStarted:
    return AttemptStarted(time=time, format=1, trial_id=1, attempt=1, host="a", pid=1, sdk_version="1", **more)


def trained(time: float, steps: int, loading_s: float | None = None) -> Report:
    return Report(time, "training", steps, {"loss": 1.0}, loading_s=loading_s)


def validated(time: float, steps: int) -> Report:
    return Report(time, "validation", steps, {"loss": 1.0})


def saved(time: float, steps: int, saving_s: float | None = None, behind_s: float | None = None) -> CheckpointStored:
    return CheckpointStored(
        time=time,
        storage_id="a",
        storage="home:checkpoints",
        steps_completed=steps,
        metadata={},
        resources={},
        saving_s=saving_s,
        behind_s=behind_s,
    )


def read(*records: Record, until: float | None = None) -> tuple[AttemptClock, list[TimeMark]]:
    clock = AttemptClock()
    marks = [mark for record in records if (mark := clock.feed(record)) is not None]
    if until is not None:
        clock.pass_to(round(until * 1000))
    return clock, marks


def seconds(time: TrialTime) -> dict[str, float]:
    return {name: value / 1000 for name, value in vars(time).items() if value}


def test_the_steps_before_the_first_report_are_training_at_the_pace_of_the_next() -> None:
    clock, _ = read(started(100), trained(130, 10), trained(140, 20))

    assert (clock.starting, clock.training) == (20_000, 20_000)


def test_an_attempt_that_has_reported_once_has_trained_since_it_began() -> None:
    clock, _ = read(started(100), trained(130, 10))

    assert (clock.starting, clock.training) == (0, 30_000)


def test_an_attempt_without_a_report_was_starting() -> None:
    clock, _ = read(started(100), until=130)

    assert (clock.starting, clock.training) == (30_000, 0)


def test_a_first_report_without_steps_ends_the_start() -> None:
    clock, _ = read(started(100), trained(130, 0), trained(140, 10))

    assert (clock.starting, clock.training) == (30_000, 10_000)


def test_a_validation_begins_with_the_last_report_of_the_training() -> None:
    clock, _ = read(started(100), trained(110, 10), trained(120, 20), validated(127, 20), trained(137, 30))

    assert (clock.training, clock.validating) == (30_000, 7_000)


def test_a_script_that_reports_only_validations_trains_between_them() -> None:
    clock, _ = read(started(100), validated(115, 10), validated(125, 20))

    assert (clock.starting, clock.training, clock.validating) == (5_000, 20_000, 0)


def test_a_script_that_says_when_it_validates_is_believed() -> None:
    phase = PhaseEnded(time=128, phase="validation", seconds=3)
    records = started(100), trained(110, 10), trained(120, 20), validated(127.5, 20), phase, trained(138, 30)

    clock, _ = read(*records)

    assert (clock.training, clock.validating) == (35_000, 3_000)


def test_what_holds_the_training_up_is_no_training() -> None:
    clock, _ = read(started(100), trained(110, 10), trained(120, 20, 2.5), saved(121, 20, 0.75), validated(125, 20))

    assert (clock.loading, clock.saving, clock.validating, clock.training) == (2_500, 750, 4_250, 17_500)


def test_work_after_the_last_checkpoint_that_counts_is_lost() -> None:
    records = started(0), trained(10, 10), trained(20, 20), saved(21, 20, 1), trained(31, 30), validated(33, 30)
    first, marks = read(*records, until=40)
    second, _ = read(started(45, resumed_steps=20), trained(55, 30), trained(65, 40), until=65)

    time = trial_time(0, [AttemptSpan(first, "down", True, marks[-1]), AttemptSpan(second)])

    assert seconds(time) == {"training": 40.0, "saving": 1.0, "lost": 19.0, "down": 5.0}
    assert time.wall == 65_000


def test_without_a_checkpoint_all_work_is_lost() -> None:
    first, _ = read(started(0), trained(12, 10), trained(22, 20), until=30)
    second, _ = read(started(31), trained(41, 10))

    time = trial_time(0, [AttemptSpan(first, "down", True), AttemptSpan(second)])

    assert seconds(time) == {"starting": 2.0, "lost": 28.0, "down": 1.0, "training": 10.0}


def test_a_save_in_the_background_keeps_the_state_that_it_was_given() -> None:
    first, marks = read(started(0), trained(10, 10), trained(20, 20), saved(26, 20, 1, behind_s=5), until=30)
    second, _ = read(started(30, resumed_steps=20), until=30)

    time = trial_time(0, [AttemptSpan(first, "down", True, marks[-1]), AttemptSpan(second)])

    assert seconds(time) == {"training": 20.0, "saving": 1.0, "lost": 9.0}


def test_a_trial_waits_before_it_is_launched_and_is_stopped_until_it_is_asked_for() -> None:
    first, _ = read(started(20, asked=0, launched=18), trained(30, 10), trained(40, 20), until=40)
    second, _ = read(started(110, asked=100, launched=107, resumed_steps=20), trained(120, 30), until=120)

    time = trial_time(17_000, [AttemptSpan(first, "stopped"), AttemptSpan(second)], until=150_000)

    assert seconds(time) == {"waiting": 55.0, "starting": 5.0, "training": 30.0, "stopped": 60.0}


def test_an_attempt_of_which_nothing_was_recorded_has_no_time() -> None:
    """It was killed before its first record, and had no agent."""
    second, _ = read(started(110), trained(120, 10), until=130)

    time = trial_time(100_000, [AttemptSpan(AttemptClock()), AttemptSpan(second)])

    assert seconds(time) == {"starting": 10.0, "training": 20.0}


def test_an_attempt_that_began_before_the_end_of_the_one_before_counts_from_that_end() -> None:
    first, _ = read(started(0), trained(10, 10), trained(20, 20), until=30)
    second, _ = read(started(25), trained(35, 30), trained(45, 40), until=45)

    time = trial_time(0, [AttemptSpan(first), AttemptSpan(second)])

    assert time.wall == 45_000


_times = st.floats(-50, 300, allow_nan=False)
_durations = st.floats(0, 100, allow_nan=False)
_steps = st.integers(0, 60)
_records = st.one_of(
    st.builds(Report, _times, st.sampled_from(["training", "validation", "other"]), _steps, st.just({})),
    st.builds(Report, _times, st.just("training"), _steps, st.just({}), st.none(), st.none(), _durations),
    st.builds(saved, _times, _steps, st.none() | _durations, _durations),
    st.builds(PhaseEnded, time=_times, phase=st.sampled_from(["validation", "other"]), seconds=_durations),
    st.builds(ProgressReported, time=_times, progress=st.just(0.5)),
    st.builds(Ended, time=_times, outcome=st.just("paused")),
)


@settings(max_examples=100)
@given(st.lists(_records, max_size=30), st.integers(0, 30))
def test_records_that_are_counted_together_give_the_same(records: list[Record], cut: int) -> None:
    together, one_by_one = AttemptClock(), AttemptClock()

    marks = [*together.feed_all(records[:cut]), *together.feed_all(records[cut:])]

    assert [mark for _, mark in marks] == [mark for record in records if (mark := one_by_one.feed(record)) is not None]
    assert together == one_by_one


_starts = st.builds(started, _times, asked=st.none() | _times, launched=st.none() | _times, resumed_steps=_steps)


@st.composite
def _attempts(draw: st.DrawFn) -> AttemptSpan:
    records = [draw(_starts)] if draw(st.booleans()) else []
    clock, marks = read(*records, *draw(st.lists(_records, max_size=12)), until=draw(_times))
    kept = draw(st.sampled_from([None, *marks]))
    gap: Gap = draw(st.sampled_from(["down", "stopped", "waiting"]))
    return AttemptSpan(clock, gap, draw(st.booleans()), kept)


@settings(max_examples=100)
@given(st.lists(_attempts(), max_size=5), _times, st.none() | _times)
def test_the_phases_add_up_to_the_wall_time(attempts: list[AttemptSpan], created: float, until: float | None) -> None:
    """Whatever clocks and records say, no millisecond is counted twice, and none is missing."""
    begun_ms = round(created * 1000)

    time = trial_time(begun_ms, attempts, None if until is None else round(until * 1000))

    for clock in (attempt.clock for attempt in attempts):
        assert clock.starting + clock.work == clock.now - (clock.begun or 0)
    attempts = [attempt for attempt in attempts if attempt.clock.begun is not None]
    first = [attempts[0].clock.asked, attempts[0].clock.launched, attempts[0].clock.begun] if attempts else []
    begin = min(time for time in (begun_ms, *first) if time is not None)
    ends = [attempt.clock.now for attempt in attempts] + ([] if until is None else [round(until * 1000)])
    assert min(vars(time).values()) >= 0
    assert begin + time.wall == max([begin, *ends])
