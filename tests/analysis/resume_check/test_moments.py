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

    assert [each.name for each in choose_moments(without, 0, MOMENTS)] == ["first", "middle", "twice", "sigterm"]
    assert choose_moments(REPORTS[:1], 0, MOMENTS) == []


def test_a_number_is_a_step_at_which_anything_may_happen() -> None:
    """A step that was not reported, or is the last one, is no moment; an unknown name is refused."""
    chosen = choose_moments(REPORTS, 2, check_moments([3, 8, 99]), "kill")

    assert [each.disturbances for each in chosen] == [(Disturbance("kill", 3, "training"),)]
    with pytest.raises(ValueError, match="'end' is no moment: give the number of a step, or one of first, middle"):
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
