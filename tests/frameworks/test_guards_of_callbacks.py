"""A training with a framework's callback goes back by a guard of the command line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from frameworks.callback_guards import NUM_STEPS
from frameworks.environments import FrameworkEnvironment

from core_sdk._ground.records import AttemptStarted
from core_sdk._home import Home
from core_sdk._home.journal import find_records
from core_sdk.client import Tracker

SCRIPT = Path(__file__).with_name("callback_guards.py")
TIMEOUT_S = 200


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("shape", ["lightning", "transformers"])
def test_a_callback_goes_back(callbacks: FrameworkEnvironment, tmp_path: Path, home: Home, shape: str) -> None:
    """It goes on from the newest checkpoint before the NaN, and its files of its own are not those of the trouble."""
    run = ["-m", "core_sdk._interfaces.cli", "run", "--guard", "loss not_finite action=go_back"]

    ended = callbacks.run(*run, "--", str(callbacks.python), str(SCRIPT), shape, cwd=tmp_path, timeout_s=TIMEOUT_S)

    output, trial = ended.stdout + ended.stderr, Tracker().get_trial(1)
    starts = [next(find_records(home.trial(1).journal_path(each), ['"attempt"'])) for each in (1, 2)]
    assert (ended.returncode, trial.state.name, trial.num_attempts) == (0, "COMPLETED", 2), output
    assert [each.resumed_steps for each in starts if isinstance(each, AttemptStarted)] == [0, 6], output
    reported = [each for each in trial.iter_metrics("training") if "loss" in each.metrics]  # one is about the whole
    losses = [(each.steps_completed, each.metrics["loss"]) for each in reported]
    assert [step for step, _ in losses if step is not None and step > 6] == list(range(7, NUM_STEPS + 1))
    assert all(math.isfinite(loss) for _, loss in losses)
