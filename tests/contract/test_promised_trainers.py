"""What is promised of `core_sdk.train`, where no other test holds it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Script, wait_for
from promises import promise

from core_sdk import client, train
from core_sdk._ground.records import (
    STOPPED_BY_SEARCHER,
)
from core_sdk._home import Home
from core_sdk.train import Checkpoint, ScalingConfig, TorchTrainer

StartScript = Callable[..., Script]
RunScript = Callable[..., tuple[int, str, str]]


@promise("fit-goes-on")
def test_a_fit_goes_on_when_its_program_was_killed(home: Home, start_script: StartScript) -> None:
    """The next start of a program that was killed goes on from the last checkpoint of its fit()."""
    source = """
        import os, signal, tempfile, time
        from core_sdk import train
        from core_sdk.train import Checkpoint, RunConfig, ScalingConfig, TorchTrainer

        def function(config):
            if train.get_checkpoint() is not None:
                return
            with tempfile.TemporaryDirectory() as directory:
                open(os.path.join(directory, "state"), "w").close()
                train.report({"loss": 0.5}, checkpoint=Checkpoint.from_directory(directory))
            if train.get_context().get_world_rank() == 0:
                os.kill(config["program"], signal.SIGKILL)
            time.sleep(60)

        config, run = {"program": os.getpid()}, RunConfig(job_id="job")
        TorchTrainer(function, train_loop_config=config, scaling_config=ScalingConfig(2), run_config=run).fit()
    """

    codes = [start_script(source).wait()[0] for _ in range(2)]

    assert codes == [-signal.SIGKILL, 0]
    assert home.trial_ids() == [1]
    assert len(client.get_trial(1).list_checkpoints()) == 1
    assert home.trial(1).attempts() == [1, 2]


@promise("fit-has-own-workers")
def test_each_fit_has_workers_that_end_with_it(run_script: RunScript) -> None:
    """Each fit() has new worker processes, which import modules again."""
    code, output, errors = run_script("""
        import json, os
        from core_sdk.train import ScalingConfig, TorchTrainer

        def function():
            import json
            earlier, json.earlier = getattr(json, "earlier", None), "left"
            return os.getpid(), earlier

        for _ in range(2):
            pid, earlier = TorchTrainer(function, scaling_config=ScalingConfig(2)).fit().return_value
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                print("gone", earlier)
    """)

    assert code == 0, errors
    assert output.splitlines() == ["gone None"] * 2


@promise("functions-stopped")
@pytest.mark.parametrize(
    ("saved_at", "source", "ends_at"),
    [
        ((), "a person", 7),
        ((), STOPPED_BY_SEARCHER, 7),
        ((3, 6, 8), "a person", 8),
        ((3, 6), "a person", 9),
        ((3, 6, 8), STOPPED_BY_SEARCHER, 7),
    ],
)
def test_a_stop_ends_a_function_that_never_asks_in_a_report(
    home: Home, tmp_path: Path, saved_at: tuple[int, ...], source: str, ends_at: int
) -> None:
    """The stop is heard before report 7; `saved_at` are the reports with a checkpoint."""

    def function() -> None:
        context = train.get_context().core_context
        for step in range(1, 20):
            if step == 7:
                home.trial(1).request_stop(1, source)
                wait_for(lambda: context.preempt.is_stop_agreed)
            checkpoint = Checkpoint.from_directory(tmp_path / "state") if step in saved_at else None
            train.report({"loss": 0.5}, checkpoint=checkpoint)

    (tmp_path / "state").mkdir()
    result = TorchTrainer(function, scaling_config=ScalingConfig(num_workers=0)).fit()

    assert result.is_stopped
    assert client.get_trial(1).steps_completed == ends_at
