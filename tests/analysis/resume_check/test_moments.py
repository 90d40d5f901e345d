"""Which moments of a training are disturbed."""

from __future__ import annotations

import pytest

from core_sdk._analysis.resume_check._moments import MOMENTS, check_moments, choose_moments
from core_sdk._ground.records import CheckpointBegun, Report, StatusSet
from core_sdk.core._preempt._disturbance import Disturbance

REPORTS = [
    *(Report(0.0, "training", step, {"loss": 1.0}) for step in range(1, 5)),
    Report(0.0, "validation", 4, {"accuracy": 1.0}),
    *(Report(0.0, "training", step, {"loss": 1.0}) for step in range(5, 9)),
]


def test_every_moment_is_chosen_from_what_was_reported() -> None:
    """The first step, the middle, an epoch's end, a validation and the saves are found in the reports."""
    chosen = {each.name: each.words for each in choose_moments(REPORTS, 2, MOMENTS)}

    assert chosen == {
        "first": "stop after step 1",
        "middle": "stop after step 4",
        "epoch-end": "stop after step 4, before a validation",
        "validation": "stop after step 4, after a validation",
        "twice": "stop after step 3, and again after step 4",
        "sigterm": "SIGTERM after step 6",
        "kill": "kill -9 after step 5",
        "kill-in-save": "kill -9 in save 1 of 2",
    }


def test_a_training_without_saves_is_not_killed() -> None:
    """It would begin anew. Without a validation there is no end of an epoch to be seen."""
    without = [each for each in REPORTS if each.group == "training"]

    assert [each.name for each in choose_moments(without, 0, MOMENTS)] == ["middle", "twice", "first", "sigterm"]
    assert choose_moments(REPORTS[:1], 0, MOMENTS) == []


def test_a_script_with_files_of_its_own_is_killed_as_well() -> None:
    """Its saves are not known, so that it is neither killed in one nor ended before its first."""
    without = [each for each in REPORTS if each.group == "training"]

    assert [each.name for each in choose_moments(without, None, MOMENTS)] == ["middle", "kill", "twice", "sigterm"]


def test_a_long_validation_is_disturbed_in_its_middle() -> None:
    """The stop comes in half of its time after the report before it."""
    times = [1.0, 2.0, 8.0, 9.0, 10.0]
    groups = ["training", "training", "validation", "training", "training"]
    reports = [Report(at, group, step, {}) for step, (at, group) in enumerate(zip(times, groups, strict=True), 1)]

    (moment,) = choose_moments(reports, 1, ["in-validation"])

    assert moment.words == "stop 3.0 s after step 2, in a validation"
    assert moment.disturbances == (Disturbance("stop", 2, "training", delay_s=3.0),)
    assert not choose_moments(REPORTS, 1, ["in-validation"])


def test_a_seed_chooses_random_moments() -> None:
    """The same seed chooses the same steps and kinds, at most one for each step, and no kill without a save."""
    chosen = choose_moments(REPORTS, 2, [], num_random=5, seed=7)

    assert chosen == choose_moments(REPORTS, 2, [], num_random=5, seed=7)
    assert len({each.disturbances[0].step for each in chosen}) == 5
    assert len(choose_moments(REPORTS, 2, [], num_random=99)) == 7
    every = (choose_moments(REPORTS, 0, [], num_random=7, seed=seed) for seed in range(20))
    assert {each.disturbances[0].how for moments in every for each in moments} == {"stop", "sigterm"}


def test_a_number_is_a_step_at_which_anything_may_happen() -> None:
    """A step that was not reported, or is the last one, is no moment; an unknown name is refused."""
    chosen = choose_moments(REPORTS, 2, check_moments([3, 8, 99]), "kill")

    assert [each.disturbances for each in chosen] == [(Disturbance("kill", 3, "training"),)]
    with pytest.raises(ValueError, match="'end' is no moment: give the number of a step, or one of middle, kill"):
        check_moments(["first", "end"])


@pytest.mark.parametrize(
    ("planned", "due"),
    [
        (Disturbance("stop", step=4), 3),
        (Disturbance("stop", step=4, group="validation"), 4),
        (Disturbance("stop", number=7), 6),
    ],
)
def test_a_disturbance_is_due_at_its_report(planned: Disturbance, due: int) -> None:
    """A step means its first report, of a group if one is named, and a number the report with that number."""
    found = next(index for index, report in enumerate(REPORTS) if planned.is_due(report, index + 1))

    assert found == due
    assert not planned.is_due(StatusSet(time=0.0, status="busy"), 99)


def test_a_disturbance_in_a_save_heeds_no_report() -> None:
    """The number counts the saves."""
    planned = Disturbance("kill", number=2, in_save=True)
    save = CheckpointBegun(time=0.0, storage_id="id", storage="file:///checkpoints")

    assert not any(planned.is_due(report, 2) for report in REPORTS)
    assert [planned.is_due(save, number) for number in (1, 2)] == [False, True]
