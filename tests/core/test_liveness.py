"""A trial counts as running whatever its script does with the home, and no longer than its script lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Script, wait_for

from core_sdk._ground.records import Report
from core_sdk._home import Home, open_view
from core_sdk._home.deletion import delete_trial
from core_sdk._home.journal import read_records
from core_sdk.client import Tracker
from core_sdk.errors import TrialRunningError


def test_a_training_that_copies_its_home_is_still_running(
    home: Home, start_script: Callable[..., Script], tmp_path: Path
) -> None:
    """A script that copies its home keeps its lock: the trial cannot be deleted and its reports are kept."""
    script = start_script(
        """
        import os, pathlib, shutil, time
        import core_sdk

        with core_sdk.core.init() as context:
            shutil.copytree(os.environ["CORE_SDK_HOME"], "backup", ignore=shutil.ignore_patterns("*.tmp"))
            print("copied")
            while not pathlib.Path("go").exists():
                time.sleep(0.01)
            context.train.report_training_metrics(steps_completed=2, metrics={"loss": 1.0})
        """
    )
    script.read_until("copied")

    with Tracker().index() as index:
        state = index.trial(1).state
    with pytest.raises(TrialRunningError):
        delete_trial(home.trial(1))
    (tmp_path / "go").touch()

    assert script.wait()[0] == 0
    assert state == "ACTIVE"
    assert any(isinstance(record, Report) for record in read_records(home.trial(1).journal_path(1)))


def test_a_data_loader_s_worker_does_not_keep_a_killed_training_running(
    home: Home, start_script: Callable[..., Script]
) -> None:
    """A killed training does not count as running, although a busy data-loader worker outlives it."""
    script = start_script(
        """
        import os, time
        import torch
        import core_sdk

        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return 1
            def __getitem__(self, index):
                print(os.getpid(), flush=True)
                time.sleep(600)

        with core_sdk.core.init() as context:
            loader = torch.utils.data.DataLoader(Slow(), num_workers=1, multiprocessing_context="fork")
            next(iter(loader))
        """
    )
    assert script.process.stdout is not None
    worker = int(script.process.stdout.readline())
    try:
        was_running = home.trial(1).running_attempt()
        script.process.kill()
        script.process.wait()

        os.kill(worker, 0)  # it lives
        assert was_running == 1
        assert home.trial(1).running_attempt() is None
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)"])
def test_a_script_that_makes_itself_a_daemon_in_its_context_is_told_what_to_do(
    home: Home, run_script: Callable[..., tuple[int, str, str]], leave: str
) -> None:
    """A script that becomes a daemon ends in an error that says where to call `init()`."""
    run_script(
        f"""
        import os, sys
        from core_sdk import core

        with core.init() as context:
            if os.fork():
                {leave}
            os.setsid()
            if os.fork():
                os._exit(0)
            os.closerange(0, 256)
            context.train.report_training_metrics(1, {{"loss": 1.0}})
        """
    )

    def reason() -> str:
        with open_view(home) as view:
            (row,) = view.trials()
        return row.reason if row.state == "ERROR" else ""

    wait_for(lambda: "call init() in the daemon" in reason())
