"""A script that trains several times does the same under `core-sdk run` as under plain `python`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from interfaces.cli.commands import Cli, StartCli, WriteScript
from processes import Script
from promises import promise

from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk._home.rows import TrialRow

FOLDS = """
import sys, time
from core_sdk import core
for fold in range(3):
    with core.init(hparams={"fold": fold}) as context:
        for step in range(1, 1_000_000 if fold == 1 and sys.argv[1] == "long" else 3):
            context.train.report_training_metrics(step, {"loss": 1.0})
            if context.preempt.should_preempt():
                break
            if step == 1:
                print("fold", fold, context.info.trial.hparams, flush=True)
            time.sleep(0.01)
"""
POOL = """
import multiprocessing, sys
from core_sdk import core
def train(fold):
    with core.init(hparams={"fold": fold}) as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        pool.map(train, range(3), chunksize=1)
"""


def trials(home: Home) -> list[TrialRow]:
    with Index(home) as index:
        index.refresh()
        return sorted(index.trials(), key=lambda trial: trial.trial_id)


def states(home: Home) -> list[str]:
    return [trial.state for trial in trials(home)]


def test_folds_in_a_loop_are_trials_of_their_own(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """Several trainings in one program are trials with the first one's name, options and experiment."""
    path = write_script(FOLDS)

    ran = cli("run", "--hparam", "lr=0.1", "--seed", "7", "--", sys.executable, str(path), "short")
    again = cli("trial", "resume", "2")

    first, *others = trials(home)
    assert ran.status == 0
    assert "trial 3, which its program has begun after it: COMPLETED" in ran.errors
    assert states(home) == ["COMPLETED"] * 3
    assert [trial.name for trial in others] == [f"{first.name}.2", f"{first.name}.3"]
    assert [trial.hparams for trial in (first, *others)] == [{"lr": 0.1, "fold": fold} for fold in range(3)]
    assert [home.trial(number).read_record().seed for number in (1, 2, 3)] == [7] * 3
    assert [home.trial(number).read_record().started_by for number in (1, 2, 3)] == [None, 1, 1]
    assert len(home.experiment_ids()) == 1
    assert (again.status, "the program of trial 1" in again.errors) == (1, True)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_are_trials_of_their_own(
    home: Home, cli: Cli, write_script: WriteScript, method: str
) -> None:
    """Each worker of a pool has a trial of its own."""
    assert cli("run", "--", sys.executable, str(write_script(POOL)), method).status == 0

    assert states(home) == ["COMPLETED"] * 3
    assert sorted(trial.hparams["fold"] for trial in trials(home)) == [0, 1, 2]


@pytest.mark.parametrize("way", ["SIGTERM", "pause"])
def test_a_stop_is_for_all_that_the_script_still_trains(
    home: Home, cli: Cli, start_cli: StartCli, write_script: WriteScript, way: str
) -> None:
    """The signal to the command, and the pause of its trial, also once that one is complete."""
    running = start_cli("run", "--", sys.executable, str(write_script(FOLDS)), "long")
    running.read_until("fold 1 {'fold': 1}")
    if way == "SIGTERM":
        running.process.send_signal(signal.SIGTERM)
    else:
        cli("trial", "pause", "1")

    assert running.wait()[0] == 75
    assert states(home) == ["COMPLETED", "PAUSED", "PAUSED"]


@promise("stop-asked-for")
def test_under_plain_python_a_signal_stops_the_later_trainings_too(
    home: Home, start_script: Callable[..., Script]
) -> None:
    """Under plain Python a SIGTERM also stops later trainings, and in a job the exit status is 75."""
    script = start_script(FOLDS, "long", SLURM_JOB_ID="7")
    script.read_until("fold 1 {'fold': 1}")
    script.process.send_signal(signal.SIGTERM)

    assert script.wait()[0] == 75
    assert states(home) == ["COMPLETED", "PAUSED", "PAUSED"]


def test_a_resume_of_the_first_trains_all_again_and_goes_on_with_those_of_a_job(
    home: Home, cli: Cli, write_script: WriteScript
) -> None:
    """Resuming the first trial runs the program again; others continue only if they have job ids."""
    plain, named = write_script(FOLDS), Path(str(write_script(FOLDS)) + ".named.py")
    named.write_text(plain.read_text().replace("init(", "init(job_id=f'fold-{fold}', "))

    cli("run", "--", sys.executable, str(plain), "short")
    cli("trial", "resume", "1", "--again")
    assert [trial.num_attempts for trial in trials(home)] == [2, 1, 1, 1, 1]

    cli("run", "--", sys.executable, str(named), "short")
    cli("trial", "resume", "6", "--again")
    assert [trial.num_attempts for trial in trials(home)][5:] == [2, 2, 2]


def test_in_a_search_the_first_training_is_the_searchs(home: Home, cli: Cli, tmp_path: Path) -> None:
    """In a search, later trainings share the hyperparameters but belong to the script's experiment."""
    (tmp_path / "train.py").write_text(FOLDS)
    (tmp_path / "search.yaml").write_text(
        f"{{name: search, entrypoint: {sys.executable} train.py short, hyperparameters: {{lr: 0.5}}, "
        "resources: {slots_per_trial: 0}, searcher: {name: single, metric: loss, max_length: 2}}"
    )

    assert cli("experiment", "create", "search.yaml", ".", "--local").status == 0

    assert [(trial.experiment_name, trial.state, trial.hparams["lr"]) for trial in trials(home)] == [
        ("search", "COMPLETED", 0.5),
        ("train.py", "COMPLETED", 0.5),
        ("train.py", "COMPLETED", 0.5),
    ]
