"""A launcher that starts a script again goes on with its trial; the launcher here is a shell."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from core.counting import counting_script

from core_sdk._ground.alive import AliveLock
from core_sdk._home import Home
from core_sdk.client import Tracker

Launch = Callable[..., str]

# It fails at step 6 of the first start.
SCRIPT = counting_script("if sys.argv[1] == '0': os._exit(3)")


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Starts a script twice with the number of the start and returns its output."""
    directory = tmp_path / "launch"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("CORE_SDK_LAUNCH_DIR", str(directory))
    monkeypatch.setenv("CORE_SDK_QUIET", "1")

    def start_twice(source: str = SCRIPT, between: str = "true", **variables: str) -> str:
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(source))
        settings = " ".join(f"{name}={value}" for name, value in variables.items())
        starts = f"{sys.executable} train.py 0; {between}; {settings} {sys.executable} train.py 1"
        finished = subprocess.run(["sh", "-c", starts], capture_output=True, text=True, cwd=tmp_path, timeout=60)
        return finished.stdout + finished.stderr.strip().rpartition("\n")[2]

    return start_twice


def test_the_next_start_goes_on_from_the_newest_checkpoint(launch: Launch) -> None:
    """A restart is the trial's next attempt, and each step is reported once."""
    output = launch()

    trial = Tracker().get_trial(1)
    assert output == "1.1.0\n1.2.4\n"
    assert (trial.state.name, trial.num_attempts, trial.steps_completed) == ("COMPLETED", 2, 10)
    assert [report.steps_completed for report in trial.iter_metrics()] == list(range(1, 11))
    assert len(Tracker().list_experiments()) == 1


def test_a_start_that_failed_before_its_first_checkpoint_is_repeated(launch: Launch) -> None:
    """A restart before the first checkpoint begins at step 0 of the same trial."""
    assert launch(SCRIPT.replace("step % 4", "step % 8")) == "1.1.0\n1.2.0\n"


def test_damaged_checkpoints_are_passed_over(launch: Launch, home: Home) -> None:
    """Damaged checkpoints are skipped; if none is intact, the start fails instead of training from step 0."""
    damage = f"for f in {home.checkpoints}/*/step; do echo x > $f; done"

    output = launch(between=damage)

    assert output.startswith("1.1.0\ncore_sdk.errors.NothingToResumeError: cannot start trial 1 again: none of its ")
    assert Tracker().get_trial(1).num_attempts == 1


def test_a_script_of_several_trials_begins_new_ones(launch: Launch) -> None:
    """A restarted script that began several trials begins new ones."""
    output = launch("""
        from core_sdk import core

        for _ in range(2):
            with core.init() as context:
                print(context.info.trial.trial_id)
    """)

    assert output == "1\n2\n3\n4\n"


def test_a_script_that_a_rank_starts_has_a_trial_of_its_own(launch: Launch) -> None:
    """A script that a rank starts does not continue the rank's trial, although it inherits its environment."""
    output = launch("""
        import subprocess, sys
        from core_sdk import core

        with core.init() as context:
            print(context.info.trial.trial_id, flush=True)
            if len(sys.argv) == 2 and sys.argv[1] == "0":
                subprocess.run([sys.executable, __file__, "0", "child"], check=True)
    """)

    assert output == "1\n2\n1\n"


def test_a_start_in_another_home_begins_there(launch: Launch, tmp_path: Path) -> None:
    """A restart in another home begins a new trial there."""
    assert launch(CORE_SDK_HOME=str(tmp_path / "other")) == "1.1.0\n1.1.0\n"


@pytest.mark.parametrize(("count", "expected"), [("1", "1.2.4"), ("0", "2.1.0")])
def test_torchrun_tells_a_restart_by_its_count(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Home, count: str, expected: str
) -> None:
    """With torchrun, a restart count continues the trial in the run info, and count 0 begins a new trial."""
    monkeypatch.delenv("CORE_SDK_LAUNCH_DIR")
    (tmp_path / "run.json").write_text('{"trial": {"trial_id": 1, "experiment_id": 1, "trial_seed": 0}}')
    prepare = f"""{sys.executable} -c "from core_sdk import core; core.init().close()"; rm {home.runs}/1/1.*"""
    subprocess.run(["sh", "-c", prepare], check=True)
    monkeypatch.setenv("CORE_SDK_RUN_INFO", str(tmp_path / "run.json"))

    output = launch(TORCHELASTIC_RESTART_COUNT=count)

    assert output.startswith(f"1.1.0\n{expected}")


def test_a_trial_runs_as_long_as_its_launcher(home: Home) -> None:
    """A trial counts as running while its launcher lives, also between two starts of its ranks."""
    Home.create(home.root)
    folder = home.create_trial()
    supervisor = AliveLock(folder.supervised_path(1))
    for attempt in (1, 2):
        folder.journal_path(attempt).touch()

    assert folder.running_attempt() == 2
    supervisor.release()
    assert folder.running_attempt() is None
