"""A Context that is held by the cells of a notebook, in a real kernel."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from kernels import run
from parts import needs

from core_sdk import core
from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk.errors import ReportsDroppedError

OPEN = """
import os, time
from core_sdk import core
context = core.init({})
context.start()
"""
TRAIN = """
for step in range(1, 1_000_000):
    context.train.report_training_metrics(step, {"loss": 1.0})
    time.sleep(0.01)
    if step == 3: print(os.getpid())
"""


def states(home: Home) -> list[tuple[str, int]]:
    """Returns the state and the number of attempts of each trial."""
    with Index(home) as index:
        index.refresh()
        return [(trial.state, trial.num_attempts) for trial in sorted(index.trials(), key=lambda each: each.trial_id)]


@needs("kernel")
def test_a_cell_that_is_interrupted_ends_the_attempt(kernel: Any, home: Home) -> None:
    """An interrupted cell cancels the attempt, or pauses it if the code asks should_preempt()."""
    run(kernel, OPEN.format(""))
    interrupted = run(kernel, TRAIN, interrupted=True)
    after_it = states(home)
    refused = run(kernel, "context.train.report_training_metrics(2_000_000, {'loss': 1.0})")

    run(kernel, OPEN.format(""))
    asking = TRAIN + "    if context.preempt.should_preempt(): break"
    run(kernel, asking, interrupted=True)
    run(kernel, "context.close()")

    function = "".join(f"    {line}\n" for line in (OPEN.format("") + TRAIN).splitlines())
    run(kernel, f"def train():\n{function}\ntrain()", interrupted=True)

    assert "its attempt is canceled" in interrupted
    assert "KeyboardInterrupt" in interrupted
    assert after_it == [("CANCELED", 1)]
    assert "JournalError" in refused
    assert states(home) == [("CANCELED", 1), ("PAUSED", 1), ("CANCELED", 1)]


@needs("kernel")
def test_a_cell_that_is_run_again_goes_on_with_its_job(kernel: Any, home: Home) -> None:
    """Running a cell again closes its open attempt without waiting and begins the job's next attempt."""
    begun = time.monotonic()
    for number in (1, 2, 3):
        told = run(kernel, OPEN.format("job_id='a'")).splitlines()
        assert all(line.startswith("core-sdk: trial 1") for line in told), told
        assert f"attempt {number}" in told[-1] or number == 1

    assert time.monotonic() - begun < 60  # a job waits two minutes for another process
    assert states(home) == [("ACTIVE", 3)]


def test_a_cell_whose_home_is_gone_does_not_keep_others_from_their_trials(tmp_path: Path) -> None:
    """A Context that is left open in a home that somebody has removed stays as it is."""
    os.environ["CORE_SDK_QUIET"] = "1"
    left = core.init(job_id="cell")
    # The thread of the journal may be the first to see that it is gone.
    with pytest.warns(RuntimeWarning, match="renamed or removed"):
        shutil.rmtree(tmp_path / "home")
        os.environ["CORE_SDK_HOME"] = str(tmp_path / "another")

        for _ in range(2):
            with core.init(job_id="cell") as context:
                context.train.report_training_metrics(1, {"loss": 1.0})

        with pytest.raises(ReportsDroppedError):
            left.close()
