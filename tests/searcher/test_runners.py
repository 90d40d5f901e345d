"""Search methods of a user's own drive real trials, and go on after a kill with the same decisions."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import wait_for
from searcher import killed_runner
from searcher.methods import CONFIG, Promoting, Watching, num_trials, posted, write_code

from core_sdk import client
from core_sdk._execution.experiments.calling import call, call_running
from core_sdk._execution.experiments.protocol import Down, GetStatus, Post
from core_sdk._execution.master.local import local_master
from core_sdk._home import Home
from core_sdk.client import ExperimentState, TrialState
from core_sdk.errors import ExperimentError, ExperimentNotFoundError, InvalidConfigError, MasterError
from core_sdk.searcher import LocalSearchRunner


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write_code(tmp_path / "code")


@pytest.fixture
def master(home: Home) -> Iterator[None]:
    """A master with two slots, in this process."""
    with local_master(Home.create(home.root), 2):
        yield


def run_killed(method: str, searcher_dir: Path, code: Path, max_kills: int) -> int:
    """Runs a runner that is killed at each of its moments in turn until it has come to the end; how often it was."""
    all_moments = itertools.chain(killed_runner.FIRST_MOMENTS, itertools.cycle(killed_runner.MOMENTS))
    tests = Path(__file__).parent.parent
    moments = itertools.chain(itertools.islice(all_moments, max_kills), [killed_runner.NEVER])
    for number, moment in enumerate(moments):
        ended = subprocess.run(
            [sys.executable, killed_runner.__file__, method, moment, str(searcher_dir), str(code)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode == 0:
            return number
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    raise AssertionError


@pytest.mark.usefixtures("master")
def test_a_method_drives_a_search_to_its_end(home: Home, tmp_path: Path, code: Path) -> None:
    """A search method trains, pauses and closes its trials; an ended or deleted search is not run again."""
    experiment_id = LocalSearchRunner(Promoting(), tmp_path / "search").run(CONFIG, code)

    experiment = client.get_experiment(experiment_id)
    trials = experiment.list_trials()
    assert experiment.wait(0.05) is ExperimentState.COMPLETED
    assert experiment.progress == 1.0
    assert {trial.state for trial in trials} == {TrialState.COMPLETED}
    lengths = sorted(max(checkpoint.steps_completed for checkpoint in trial.list_checkpoints()) for trial in trials)
    assert len(trials) == 5
    assert lengths[0] == 1 and lengths[-1] == 3
    again = LocalSearchRunner(Promoting(), tmp_path / "search").run(CONFIG, code)
    assert (again, len(client.list_experiments())) == (experiment_id, 1)
    experiment.delete()
    with pytest.raises(ExperimentNotFoundError):
        LocalSearchRunner(Promoting(), tmp_path / "search").run(CONFIG, code)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("method", "num_created", "max_kills"),
    [
        ("promoting", 5, 100),
        ("promoting", 5, 10),
        ("optuna", 4, 10),
    ],
)
def test_a_killed_runner_goes_on_with_the_same_decisions(
    tmp_path: Path, code: Path, method: str, num_created: int, max_kills: int
) -> None:
    """Wherever it is killed: nothing is submitted, decided or posted twice."""
    decisions, counts = [], []
    for name in ("undisturbed", "killed"):
        home = Home.create(tmp_path / name)
        os.environ["CORE_SDK_HOME"] = str(home.root)
        with local_master(home, 2):
            if name == "undisturbed":
                LocalSearchRunner(killed_runner.method_of(method), tmp_path / "search").run(CONFIG, code)
            else:
                num_kills = run_killed(method, tmp_path / "killed search", code, max_kills)
        decisions.append(posted(home, 1))
        counts.append((num_trials(home, 1), len(home.experiment_ids())))

    assert num_kills >= 8
    assert decisions[0] == decisions[1]
    assert counts == [(num_created, 1)] * 2


@pytest.mark.usefixtures("master")
def test_a_lost_state_is_found_again_from_the_events(home: Home, tmp_path: Path, code: Path) -> None:
    """A method whose state went back to its beginning hears of all events again, and its answers are dropped."""
    experiment_id = LocalSearchRunner(Promoting(), tmp_path / "search").run(CONFIG, code)
    before = posted(home, experiment_id)
    for state in (tmp_path / "search" / "state").iterdir():
        state.rename(tmp_path / "lost")

    LocalSearchRunner(method := Promoting(), tmp_path / "search").run(CONFIG, code)

    assert posted(home, experiment_id) == before
    assert None not in [metric for rung in method.rungs for metric in rung.values()]


def test_a_search_goes_on_after_the_death_of_its_master(home: Home, tmp_path: Path, code: Path) -> None:
    """When the master is killed, the runner starts another one, and no decision is made twice."""
    ended = threading.Event()

    def run() -> None:
        LocalSearchRunner(Promoting(), tmp_path / "search").run(CONFIG, code)
        ended.set()

    runner = threading.Thread(target=run)
    runner.start()
    for num_operations in (0, 6):  # after the first answer, and after the first rung
        wait_for(lambda least=num_operations: len(posted(home, 1)) > least)  # type: ignore[misc]
        os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    runner.join(timeout=120)
    call_running(home.root, Down())

    assert ended.is_set()
    assert len(posted(home, 1)) == len(set(posted(home, 1)))
    assert (num_trials(home, 1), client.get_experiment(1).state) == (5, ExperimentState.COMPLETED)


@pytest.mark.usefixtures("master")
def test_an_answer_counts_once(home: Home, code: Path) -> None:
    """An answer to an event counts once, and one to an event that has not happened is refused."""
    experiment = client.create_experiment(CONFIG, code)

    def post(num_events: int, **operation: object) -> str:
        answer = call(home.root, Post(experiment_id=experiment.id, num_events=num_events, operations=[operation]))
        return answer.state

    with pytest.raises(MasterError, match="has had 1 events, not 2"):
        post(2, operation="shutdown")
    states = [post(1, operation="progress", progress=0.5), post(1, operation="shutdown")]
    experiment.reload()

    assert (states, experiment.progress) == (["ACTIVE", "ACTIVE"], 0.5)
    experiment.cancel()
    assert experiment.wait(0.05) is ExperimentState.CANCELED
    assert post(1, operation="shutdown") == "CANCELED"


@pytest.mark.usefixtures("master")
@pytest.mark.parametrize(
    "operation",
    [
        {"operation": "nonsense"},
        {"operation": "close", "request_id": "00000000-0000-4000-8000-000000000000"},
    ],
)
def test_an_answer_that_cannot_be_carried_out_is_refused(home: Home, code: Path, operation: dict[str, str]) -> None:
    """An impossible answer is refused, and the experiment waits for a valid one."""
    experiment = client.create_experiment(CONFIG, code)

    with pytest.raises(MasterError):
        call(home.root, Post(experiment_id=experiment.id, num_events=1, operations=[operation]))
    call(home.root, Post(experiment_id=experiment.id, num_events=1, operations=[{"operation": "shutdown"}]))

    assert experiment.wait(0.05) is ExperimentState.COMPLETED


@pytest.mark.usefixtures("master")
def test_a_method_that_fails_leaves_the_experiment_waiting(home: Home, tmp_path: Path, code: Path) -> None:
    """An exception in a method reaches the caller of run(), and the corrected method continues the search."""

    class Failing(Promoting):
        def on_validation_completed(self, *arguments: object) -> list[object]:  # type: ignore[override]
            raise ZeroDivisionError("of the method")

    with pytest.raises(ZeroDivisionError, match="of the method"):
        LocalSearchRunner(Failing(), tmp_path / "search").run(CONFIG, code)
    state = client.get_experiment(1).state
    experiment_id = LocalSearchRunner(Promoting(), tmp_path / "search").run(CONFIG, code)

    assert state is ExperimentState.ACTIVE
    assert (experiment_id, client.get_experiment(1).wait(0.05)) == (1, ExperimentState.COMPLETED)


@pytest.mark.usefixtures("master")
def test_a_method_hears_of_validations_of_scripts_that_train_as_they_want(tmp_path: Path) -> None:
    """A method learns of validations that scripts report at any step, also of NaN and of a missing metric."""
    code = write_code(tmp_path / "code")
    (code / "train.py").write_text(
        textwrap.dedent(
            """
            from core_sdk import core

            with core.init() as context:
                for step, metrics in enumerate(({"loss": 0.5}, {"loss": float("nan")}, {"lose": 0.1}), start=10):
                    context.train.report_validation_metrics(steps_completed=step, metrics=metrics)
            """
        )
    )

    LocalSearchRunner(method := Watching(), tmp_path / "search").run(CONFIG, code)

    assert repr(method.heard) == "[(0.5, 10), (nan, 11), (None, 12)]"


def test_a_runner_refuses_what_it_cannot_drive(tmp_path: Path, code: Path) -> None:
    """A runner refuses another searcher and a directory that another runner holds, and submits nothing."""
    from core_sdk._ground.alive import AliveLock

    runner = LocalSearchRunner(Promoting(), tmp_path / "search")
    config = CONFIG | {"searcher": {"name": "single", "metric": "loss"}}

    with pytest.raises(InvalidConfigError, match=r"searcher\.name.*must be 'custom'"):
        runner.run(config, code)
    lock = AliveLock(tmp_path / "search" / "lock")
    with pytest.raises(ExperimentError, match="another runner"):
        runner.run(CONFIG, code)
    lock.release()

    assert client.list_experiments() == []
