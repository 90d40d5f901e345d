"""What fingerprints tell of a training that does not go on exactly."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from core_sdk._analysis.resume_check._diagnosis._diagnosing import diagnose, first_unsteady_parts, unsteady_parts
from core_sdk.core._recorders._fingerprints import Fingerprint
from core_sdk.core._recorders._fingerprints._draws import lines_of_source


def parts(number: int, **changed: str | None) -> dict[str, str]:
    """Returns the parts before a step, and these changes; None takes one away."""
    usual = {
        "optimizer: parameters": f"weights{number} biases{number}",
        "optimizer: exp_avg": f"a{number} b{number} c",
        "optimizer: learning rate": "0.1",
        "buffers of Net: running_mean": f"mean{number}",
        "Averaged: parameters that no optimizer trains": f"ema{number}",
        "scheduler: last_epoch": f"{number}",
        "scaler: scale": f"{2 * number}.0",
        "sampler: epoch": f"{number // 4}",
        "torch's generator": f"drawn{number}",
        "the loader's generator": f"order{number}",
        "variable best of train.py": f"0.{number}",
        "variable bad of train.py": f"{number}",
        "variable resumed of train.py": "False",
        "inputs": f"batch{number}",
        "inputs: shapes": "(8, 4)",
    }
    named = {"".join(each for each in name if each.isalpha()): name for name in usual}
    given = {named[name.replace("_", "")]: value for name, value in changed.items()}
    return {name: value for name, value in {**usual, **given}.items() if value is not None}


def trained(first: int, last: int, changed: Mapping[str, str | None] | None = None, rank: int = 0) -> list[Fingerprint]:
    """Returns the fingerprints of these steps, each of which is reported. The changes are those of the first one."""
    found = [Fingerprint("start", first, {}, rank)]
    for number in range(first, last):
        found.append(Fingerprint("forward", number, parts(number, **(changed or {} if number == first else {})), rank))
        found.append(Fingerprint("step", number, {"gradients": f"{number}", "batches": f"a{number} b{number}"}, rank))
        found += [Fingerprint("training", number + 1, {})] if rank == 0 else []
    return found


UNDISTURBED = trained(0, 10)


@pytest.mark.parametrize(
    ("changed", "causes"),
    [
        ({}, []),
        (
            {"optimizer_parameters": "weights0 biases0"},
            ["the parameters of the optimizer are the initial ones: the model is not in the checkpoint, or not loaded"],
        ),
        (
            {"optimizer_parameters": "weights4 biases4"},
            ["the parameters of the optimizer are others, of their state a"],
        ),
        (
            {"optimizer_parameters": "weights5 biases5"},
            ["the parameters of the optimizer are those before the last st"],
        ),
        ({"optimizer_parameters": "weights6 noise"}, ["the parameters of the optimizer are others (1 of 2), of no "]),
        ({"optimizer_exp_avg": None}, ["the state of the optimizer is empty (exp_avg): it is not in the checkpoint"]),
        ({"optimizer_exp_avg": "a6 0 c"}, ["the state of the optimizer differs (exp_avg of 1 of 3)"]),
        (
            {"optimizer_exp_avg": "a5 b5 c"},
            ["the state of the optimizer differs (exp_avg of 2 of 3): it is saved before"],
        ),
        ({"optimizer_learning_rate": "0.2"}, ["the learning rate is 0.2 instead of 0.1: the scheduler is not in"]),
        (
            {"optimizer_exp_avg": None, "optimizer_learning_rate": "0.2"},
            ["the state of the", "the learning rate is 0.2 instead of 0.1: it belongs to the optimizer's state"],
        ),
        ({"scheduler_last_epoch": "0"}, ["the scheduler has another state (last_epoch 0 instead of 6)"]),
        ({"scaler_scale": "1.0"}, ["the scaler has another state (scale 1.0 instead of 12.0)"]),
        ({"sampler_epoch": "0"}, ["the sampler's epoch is 0 instead of 1: call set_epoch()"]),
        ({"buffers_of_Net_running_mean": "mean0"}, ["the buffers of Net differ (running_mean): they are not in the"]),
        ({"Averaged_parameters_that_no_optimizer_trains": "0"}, ["Averaged, which no optimizer trains, has other par"]),
        (
            {"inputs": "batch0"},
            ["the model is called with the batch after step 0 of the undisturbed training, th"],
        ),
        ({"inputs": "other"}, ["the model is called with a batch that the undisturbed training never had in a step"]),
        (
            {"inputs": "x y", "inputs_shapes": "(4, 4)"},
            ["the model is called with inputs of shape (4", "the m"],
        ),
        ({"torchs_generator": "drawn0"}, ["torch's generator has another state: it is not in the checkpoint"]),
        ({"the_loaders_generator": "0"}, ["the loader's generator has another state"]),
        ({"inputs": "x y", "torchs_generator": "z"}, ["torch's generator", "the model is called with a batch"]),
        (
            {"inputs": "batch3", "torchs_generator": "z"},
            ["the model is called with the batch", "torch's gener"],
        ),
        (
            {"variable_best_of_trainpy": "inf"},
            ["the variable best of train.py is inf instead of 0.6: it is not in the"],
        ),
        ({"variable_best_of_trainpy": "inf", "scaler_scale": "1.0"}, ["the scaler has another state"]),
        ({"variable_resumed_of_trainpy": "True"}, []),
    ],
)
def test_the_first_step_after_a_resume_tells_what_was_forgotten(
    changed: dict[str, str | None], causes: list[str]
) -> None:
    """Each part that differs is a cause, in the order of the causes; what never changes is none."""
    found = diagnose(UNDISTURBED, trained(6, 10, changed), frozenset())

    assert len(found) == len(causes), found
    assert all(one.startswith(other) for one, other in zip(found, causes, strict=True)), found


def test_what_differs_between_undisturbed_trainings_is_no_cause() -> None:
    """A generator that nobody has seeded is left out, and named where nothing else can be said."""
    second = trained(0, 10, {"torchs_generator": "else"})
    unsteady = unsteady_parts(UNDISTURBED, second)

    assert unsteady == {"torch's generator"}
    assert first_unsteady_parts(UNDISTURBED, second) == ["torch's generator"]
    assert diagnose(UNDISTURBED, trained(6, 10, {"torchs_generator": "third"}), unsteady) == []


def test_a_save_that_draws_is_the_cause() -> None:
    """A generator that changes between the stop and the end of its save is in the checkpoint as it is then."""
    stopped = [Fingerprint("stop", 6, {"torch's generator": "a"}), Fingerprint("save", 6, {"torch's generator": "b"})]

    found = diagnose(UNDISTURBED, trained(6, 10, {"torchs_generator": "c"}), frozenset(), stopped)

    assert found == ["torch's generator has another state: the save draws from it"]


@pytest.mark.parametrize(
    ("lines", "words"), [("data.py:41", "data.py:41 draws from it"), ("a.py:1, b.py:2", "a.py:1, b.py:2 draw from it")]
)
def test_the_lines_that_draw_are_named(lines: str, words: str) -> None:
    """Where the script draws from a generator that was forgotten stands behind its name."""
    undisturbed = [*UNDISTURBED, Fingerprint("draws", 10, {"torch's generator": lines})]

    found = diagnose(undisturbed, trained(6, 10, {"torchs_generator": "z"}), frozenset())

    assert found == [f"torch's generator has another state: it is not in the checkpoint, or not loaded; {words}"]


def test_lines_draw_by_the_names_of_their_imports() -> None:
    """Draws are found under any name, and what seeds, or draws from a generator of its own, is none."""
    source = """
import random, torch
import numpy as np
from numpy import random as rng
from random import shuffle as mix, Random
random.seed(1)
mix([random.random()])
np.random.seed(1); np.random.default_rng(3).normal()
value = rng.normal() + np.random.uniform()
torch.manual_seed(1)
torch.randperm(8, generator=torch.Generator())
torch.randn(3), torch.rand(2)
Random(3).random()
"""

    assert lines_of_source(source) == [
        ("Python's generator", 7), ("NumPy's generator", 9), ("torch's generator", 12),
    ]  # fmt: skip
    assert lines_of_source("no python") == []


def test_accumulated_gradients_are_lost() -> None:
    """All is equal before the batches of a step that has only the last ones, and the gradients differ at the step."""
    resumed = trained(6, 10)
    resumed[2] = Fingerprint("step", 6, {"gradients": "of one", "batches": "b6"})

    (cause,) = diagnose(UNDISTURBED, resumed, frozenset())

    assert cause.startswith("a step is taken with 1 of its 2 batches: the gradients that were accumulated")


def test_a_step_is_counted_otherwise() -> None:
    """The counter alone may be wrong, or all of an older checkpoint may have been loaded."""
    wrong = [
        Fingerprint("start", 6, {}),
        *(Fingerprint(each.event, each.after + 1, each.parts) for each in UNDISTURBED[19:]),
    ]
    older = [Fingerprint("start", 6, {}, notes=["step_4 was read"]), *trained(4, 10)[1:]]

    words = "the first step after the resume is reported as step"
    assert diagnose(UNDISTURBED, wrong, frozenset()) == [
        f"{words} 8 instead of 7: the counter of steps is restored wrongly"
    ]
    assert diagnose(UNDISTURBED, older, frozenset()) == [
        "step_4 was read",
        f"{words} 5 instead of 7: the training goes on from an older checkpoint",
    ]


def test_another_rank_has_forgotten_something() -> None:
    """Ranks that do not report are compared by the steps that they take with the chief."""
    undisturbed = [*UNDISTURBED, *trained(0, 10, rank=1)]
    resumed = [*trained(6, 10), *trained(6, 10, {"buffers_of_Net_running_mean": "mean of rank 0"}, rank=1)]

    (cause,) = diagnose(undisturbed, resumed, frozenset())

    assert cause.startswith("rank 1: the buffers of Net differ (running_mean)")
