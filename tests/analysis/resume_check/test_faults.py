"""`core-sdk check-resume` finds the mistakes of saves and resumes, and names what was forgotten."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from core_sdk.testing import check_resume

SCRIPT = Path(__file__).with_name("faults.py")
CAUSES = {
    13: "the state of the optimizer is empty (step, exp_avg, exp_avg_sq)",
    14: "the scheduler has another state (last_epoch 0 instead of 7",
    15: "the scaler has another state (scale 64.0 instead of",
    16: "AveragedModel, which no optimizer trains, has other parameters",
    17: "Python's generator has another state: it is not in the checkpoint",
    18: "NumPy's generator has another state: it is not in the checkpoint",
    19: "torch's generator has another state: it is not in the checkpoint",
    20: "the sampler's generator has another state",
    21: "the sampler's epoch is 0 instead of 1",
    22: "the variable position of main() in faults.py is 1 instead of 11",
    23: "a step is taken with 1 of its 2 batches: the gradients that were accumulated before the stop are lost",
    24: "torch's generator has another state",
    25: "the variable bad of main() in faults.py is 0 instead of",
    26: "the variable best of main() in faults.py is inf instead of",
    27: "the variable mean.total of main() in faults.py is",
    28: "the parameters of the optimizer are those before the last step: they are saved before step()",
    29: "the first step after the resume is reported as step 31 instead of 30: the counter of steps",
    30: "Sequential was loaded with 2 missing keys (strict=False): 3.weight, 3.bias",
    31: "step_9.pt was read, the newest by name; the newest by number is step_31.pt",
    32: "the model is called with inputs of shape (2, 4) instead of (4, 4)",
    33: "the variable packer.buffer of main() in faults.py is another",
    34: "torch's generator has another state: the save draws from it",
}
"""A cause that must be told after a stop at each step of `faults.FAULTS`; the first one, except for these."""
AFTER_BATCHES = (22, 33)
"""The position in an epoch and the buffer of a tokenizer show in the batches, which are told first."""


def check_faults(steps: list[int]) -> None:
    report = check_resume([sys.executable, str(SCRIPT)], moments=[12, *steps], budget_s=3600)

    exact, *forgetful = report.moments
    assert exact.verdict == "exact"
    assert [each.moment for each in forgetful] == [f"stop after step {step}" for step in steps]
    assert not [each.moment for each in forgetful if each.verdict == "exact"]
    told = {
        step: each.causes if step in AFTER_BATCHES else each.causes[:1]
        for step, each in zip(steps, forgetful, strict=True)
    }
    unnamed = {step for step, causes in told.items() if not any(each.startswith(CAUSES[step]) for each in causes)}
    assert not unnamed, {step: forgetful[steps.index(step)].lines() for step in unnamed}


@pytest.mark.timeout(600)
def test_two_faults_are_named() -> None:
    """An averaged copy that was not loaded, and a save that draws, are the first causes."""
    check_faults([16, 34])


@pytest.mark.timeout(1800)
def test_every_fault_is_named() -> None:
    """Each of 22 mistakes is found, and is told as the first cause."""
    check_faults(list(CAUSES))


@pytest.mark.timeout(600)
def test_a_seed_from_the_clock_is_named() -> None:
    """What differs between undisturbed trainings is named."""
    report = check_resume([sys.executable, str(SCRIPT), "time seed"], moments=[13])

    assert "two undisturbed trainings differ from step 1 on" in report.problem
    assert "What is the first to differ: " in report.problem
    assert "the sampler's generator" in report.problem


@pytest.mark.timeout(600)
def test_augmentation_in_workers_is_named() -> None:
    """The main process has restored all its generators; those of the workers begin anew."""
    report = check_resume([sys.executable, str(SCRIPT), "workers"], moments=[15])

    (moment,) = report.moments
    assert moment.causes[0].startswith("the model is called with a batch that the undisturbed training never had")
    assert "as by workers" in moment.causes[0]


@pytest.mark.timeout(600)
def test_statistics_of_another_rank_are_named() -> None:
    """The chief has restored its own."""
    launch = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--"]
    report = check_resume([*launch, str(SCRIPT.with_name("faults_of_ranks.py"))], moments=[4])

    (moment,) = report.moments
    assert moment.causes[0].startswith("rank 1: the buffers of DistributedDataParallel differ (running_mean")
