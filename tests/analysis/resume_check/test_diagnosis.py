"""What fingerprints tell of a training that does not go on exactly."""

from __future__ import annotations

import pytest

from core_sdk._analysis.resume_check._diagnosis import diagnose, unsteady_parts
from core_sdk.core._recorders import Fingerprint


def parts(number: int, **changed: str | None) -> dict[str, str]:
    """Returns the parts before a step, and these changes; None takes one away."""
    usual = {
        "inputs": f"batch {number}",
        "torch's generator": f"drawn {number}",
        "optimizer: parameters": f"weights {number}",
        "optimizer: exp_avg": f"mean {number}",
        "optimizer: learning rate": "0.1",
        "scheduler": f"epoch {number}",
    }
    names = {name.replace("optimizer: ", "").split("'")[0].replace(" ", "_"): name for name in usual}
    merged = {**usual, **{names[name]: value for name, value in changed.items()}}
    return {name: value for name, value in merged.items() if value is not None}


UNDISTURBED = [Fingerprint(number, 0, parts(number)) for number in range(10)]


@pytest.mark.parametrize(
    ("changed", "causes"),
    [
        ({}, []),
        (
            {"parameters": "weights 0"},
            ["the parameters of the optimizer are the initial ones: the model is not loaded"],
        ),
        ({"parameters": "weights 4"}, ["the parameters of the optimizer are others, of its state after step 4: "]),
        (
            {"parameters": "noise"},
            ["the parameters of the optimizer are others, of no step of the undisturbed training"],
        ),
        ({"exp_avg": None}, ["the state of the optimizer is empty (exp_avg): it is not in the checkpoint"]),
        ({"exp_avg": "mean 2"}, ["the state of the optimizer differs (exp_avg)"]),
        ({"learning_rate": "0.2"}, ["the learning rate is 0.2 instead of 0.1: the scheduler is not loaded"]),
        (
            {"exp_avg": None, "learning_rate": "0.2"},
            ["the state of the", "the learning rate is 0.2 instead of 0.1: it belongs"],
        ),
        ({"scheduler": "epoch 0"}, ["the scheduler has another state"]),
        ({"inputs": "batch 0"}, ["the model is called with the batch after step 0 of the undisturbed training"]),
        ({"inputs": "other"}, ["the model is called with a batch that the undisturbed training never had in a step"]),
        ({"torch": "drawn 0"}, ["torch's generator has another state"]),
        ({"inputs": "other", "torch": "other"}, ["the model is called with a batch", "torch's generator"]),
    ],
)
def test_the_first_step_after_a_resume_tells_what_was_forgotten(
    changed: dict[str, str | None], causes: list[str]
) -> None:
    """Each part that differs is a cause, in the order of the causes; what is right is none."""
    resumed = [Fingerprint(6, 0, parts(6, **changed)), Fingerprint(7, 0, parts(7, torch="later"))]

    found = diagnose(UNDISTURBED, resumed, frozenset())

    expected = causes or ["torch's generator has another state"]
    assert len(found) == len(expected)
    assert all(one.startswith(other) for one, other in zip(found, expected, strict=True)), found


def test_what_differs_between_undisturbed_trainings_is_no_cause() -> None:
    """A generator that nobody has seeded is left out, and so is a step that the undisturbed training never had."""
    second = [Fingerprint(number, 0, parts(number, torch=f"else {number}")) for number in range(10)]
    unsteady = unsteady_parts(UNDISTURBED, second)

    assert unsteady == {"torch's generator"}
    assert diagnose(UNDISTURBED, [Fingerprint(6, 0, parts(6, torch="third"))], unsteady) == []
    assert diagnose(UNDISTURBED, [Fingerprint(60, 0, parts(6, inputs="other"))], unsteady) == []
