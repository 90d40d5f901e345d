"""Searches with real processes, from their submission to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from execution.master.searches import (
    ASHA,
    OPERATIONS,
    PROMOTION,
    TRAIN,
    await_end,
    events_of,
    submit_search,
    submit_text,
)
from processes import wait_for

from core_sdk._execution.experiments.calling import call, is_master_running
from core_sdk._execution.experiments.protocol import ChangeSettings, GetStatus, Want
from core_sdk._ground.records import AttemptBegun, AttemptOver, Source, StopSent, ValidationRead, Wish
from core_sdk._home import Home, open_view
from core_sdk.errors import MasterError

RANDOM = """
entrypoint: [python, train.py]
hyperparameters: {x: {type: double, minval: 0, maxval: 1}}
searcher: {name: random, metric: loss, max_trials: 2, max_concurrent_trials: 2}
"""


def test_a_search_stops_the_worse_trials(home: Home, tmp_path: Path) -> None:
    """Each stopped trial ends with a checkpoint, before its last epoch, and is shown as completed by the searcher."""
    experiment_id = submit_search(home, tmp_path, max_trials=4, max_concurrent=2)

    search = await_end(home, experiment_id)

    assert (search.state, search.num_trials, search.progress) == ("COMPLETED", 4, 1.0)
    with open_view(home) as view:
        trials = view.trials(experiment_id)
        early = [(trial.state, trial.reason) for trial in trials if trial.steps_completed < 20]
        assert early and set(early) == {("COMPLETED", "stopped by the searcher")}
        assert all(view.checkpoints(trial_id=trial.trial_id) for trial in trials)


def test_a_paused_search_goes_on_where_it_was(home: Home, tmp_path: Path) -> None:
    """A paused search continues where it was, and no validation is reported to the searcher twice."""
    experiment_id = submit_search(home, tmp_path, max_trials=3)
    wait_for(lambda: any(isinstance(event, ValidationRead) for event in events_of(home, experiment_id)))

    call(home.root, Want(experiment_id=experiment_id, state="PAUSED", by="a test"))
    wait_for(lambda: call(home.root, GetStatus()).experiments[0].running == ())
    call(home.root, Want(experiment_id=experiment_id, state="ACTIVE", by="a test"))
    search = await_end(home, experiment_id)

    events = events_of(home, experiment_id)
    lengths = [(event.request_id, event.length) for event in events if isinstance(event, ValidationRead)]
    assert search.state == "COMPLETED"
    assert any(isinstance(event, AttemptOver) and event.outcome == "paused" for event in events)
    assert len(lengths) == len(set(lengths))


def test_an_experiment_whose_last_trial_ends_meanwhile_can_be_activated(home: Home, tmp_path: Path) -> None:
    """Activating a completed experiment is no error; activating a canceled one is refused."""
    first = submit_search(home, tmp_path, max_trials=1, train="print('quick')\n")
    second = submit_search(home, tmp_path, max_trials=1, train="import time\ntime.sleep(600)\n")
    await_end(home, first)
    call(home.root, Want(experiment_id=second, state="KILLED", by="a test"))
    await_end(home, second)

    assert call(home.root, Want(experiment_id=first, state="ACTIVE", by="a test")).state == "COMPLETED"
    with pytest.raises(MasterError, match=f"it is CANCELED. `core-sdk experiment continue {second}`"):
        call(home.root, Want(experiment_id=second, state="ACTIVE", by="a test"))


@pytest.mark.parametrize("wish", ["CANCELED", "KILLED"])
def test_a_canceled_search_ends(home: Home, tmp_path: Path, wish: Wish) -> None:
    """Canceling or killing a search cancels all its trials."""
    experiment_id = submit_search(home, tmp_path, train="import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    wait_for(lambda: any(isinstance(event, AttemptBegun) for event in events_of(home, experiment_id)))

    call(home.root, Want(experiment_id=experiment_id, state=wish, by="canceled by a test"))
    search = await_end(home, experiment_id)

    assert search.state == "CANCELED"
    with open_view(home) as view:
        assert {(trial.state, trial.reason) for trial in view.trials(experiment_id)} == {
            ("CANCELED", "canceled by a test")
        }


def test_a_killed_master_loses_no_trial(home: Home, tmp_path: Path) -> None:
    """If the master is killed, its trial goes on, and the next master hears its reports."""
    experiment_id = submit_search(home, tmp_path, max_trials=2)
    wait_for(lambda: any(isinstance(event, ValidationRead) for event in events_of(home, experiment_id)))

    os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    wait_for(lambda: bool(call(home.root, GetStatus()).experiments) or home_has_ended(home, experiment_id))
    search = await_end(home, experiment_id)

    begun = [
        (event.request_id, event.attempt) for event in events_of(home, experiment_id) if isinstance(event, AttemptBegun)
    ]
    assert search.state == "COMPLETED"
    assert len(begun) == len(set(begun)) == 2


def home_has_ended(home: Home, experiment_id: int) -> bool:
    search = home.experiment(experiment_id).read().search
    return search is not None and search.has_ended


def test_a_trial_that_waits_for_its_promotion_has_no_process(home: Home, tmp_path: Path) -> None:
    """A trial that waits for its promotion has no process, and then resumes from its checkpoint."""
    experiment_id = submit_text(home, tmp_path, PROMOTION, OPERATIONS)

    search = await_end(home, experiment_id)

    events = events_of(home, experiment_id)
    lengths = sorted(event.length or 0 for event in events if isinstance(event, ValidationRead) and event.is_operation)
    assert search.state == "COMPLETED"
    assert lengths == [2, 2, 2, 2, 4, 4]
    assert any(isinstance(event, AttemptOver) and event.outcome == "paused" for event in events)
    for trial_id in home.trial_ids():
        folder = home.trial(trial_id)
        output = "".join(folder.log_path(attempt).read_text() for attempt in folder.attempts()).split("\n")
        assert len(output) == len(set(output))
    with open_view(home) as view:
        assert {trial.state for trial in view.trials(experiment_id)} == {"COMPLETED"}


def test_each_trial_sees_only_its_own_gpus(home: Home, tmp_path: Path) -> None:
    """Each trial sees only its own GPUs."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "3,GPU-5"
    train = (
        "import os, pathlib, time\nprint(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n"
        "runs = pathlib.Path(os.environ['CORE_SDK_HOME'], 'runs')\n"
        "while len(list(runs.glob('*/1.log'))) < 2: time.sleep(0.02)\n"
    )

    experiment_id = submit_search(home, tmp_path, max_trials=2, max_concurrent=2, train=train)
    await_end(home, experiment_id)

    assert call(home.root, GetStatus()).gpus == ("3", "GPU-5")
    assert sorted(home.trial(trial_id).log_path(1).read_text() for trial_id in home.trial_ids()) == ["3\n", "GPU-5\n"]


def test_a_trial_that_does_not_stop_is_killed_at_the_time_out(home: Home, tmp_path: Path) -> None:
    """A trial that does not stop within preemption_timeout is killed and keeps its intended state."""
    train = "from core_sdk import core\nimport time\nwith core.init():\n    print('deaf', flush=True); time.sleep(99)\n"
    text = ASHA.format(max_trials=1, max_concurrent=1, max_time=4) + "preemption_timeout: 1\n"
    experiment_id = submit_text(home, tmp_path, text, train)
    log = home.root / "runs" / "1" / "1.log"
    wait_for(lambda: log.exists() and "deaf" in log.read_text())

    call(home.root, Want(experiment_id=experiment_id, state="CANCELED", by="canceled by a test"))
    search = await_end(home, experiment_id)

    kinds = [type(event).__name__ for event in events_of(home, experiment_id)]
    assert search.state == "CANCELED"
    assert kinds.index("StopSent") < kinds.index("KillSent")


def test_a_failing_trial_is_run_again_unless_its_output_says_that_it_is_hopeless(home: Home, tmp_path: Path) -> None:
    """A pattern with `cancel_retries` ends it at once; else it gets `max_restarts` more runs."""
    text = ASHA.format(max_trials=2, max_concurrent=2, max_time=4) + (
        "max_restarts: 2\nlog_policies: [{name: memory, pattern: out of memory, action: cancel_retries}]\n"
    )
    train = (
        "import sys\nfrom core_sdk import get_cluster_info\ntrial = get_cluster_info().trial\n"
        "sys.exit('out of memory' if trial.trial_id == 1 else 'bad' + ' luck' * trial.attempt)\n"
    )

    experiment_id = submit_text(home, tmp_path, text, train)
    search = await_end(home, experiment_id)

    attempts = [len(home.trial(trial_id).attempts()) for trial_id in (1, 2)]
    assert (search.state, search.reason) == ("ERROR", "all its trials failed")
    assert attempts == [1, 3]


def test_a_missing_module_is_not_tried_for_ever(home: Home, tmp_path: Path) -> None:
    """The search ends with the words of its scripts, although each trial may be restarted five times."""
    config = RANDOM.replace("max_trials: 2", "max_trials: 20")
    experiment_id = submit_text(home, tmp_path, config, "import no_such_module")

    search = await_end(home, experiment_id)

    words = "its scripts end before init(), with the words: ModuleNotFoundError: No module named 'no_such_module'"
    assert (search.state, search.reason) == ("ERROR", words)
    assert sum(isinstance(event, AttemptBegun) for event in events_of(home, experiment_id)) <= 10


def test_a_more_important_experiment_gets_the_slots(home: Home, tmp_path: Path) -> None:
    """For a more important experiment a trial saves and stops, and resumes later."""
    Home.create(home.root)
    call(home.root, GetStatus(), options=["--slots=1", "--stay"])
    first = submit_search(home, tmp_path, max_trials=1)
    wait_for(lambda: any(isinstance(event, ValidationRead) for event in events_of(home, first)))
    text = ASHA.format(max_trials=1, max_concurrent=1, max_time=20) + "resources: {priority: 1}\n"

    second = submit_text(home, tmp_path, text, "print('quick')\n")
    ends = await_end(home, second).ended, await_end(home, first).ended

    reasons = [event.reason for event in events_of(home, first) if isinstance(event, StopSent)]
    assert reasons[0] == "its slots are needed for an experiment of a higher priority"
    assert ends[0] is not None and ends[1] is not None and ends[0] < ends[1]


def test_a_lowered_limit_stops_the_youngest_trial(home: Home, tmp_path: Path) -> None:
    """Lowering max_slots stops the youngest trial, which resumes when another ends."""
    Home.create(home.root)
    call(home.root, GetStatus(), options=["--slots=2", "--stay"])
    experiment_id = submit_text(home, tmp_path, RANDOM, TRAIN)
    wait_for(lambda: sum(isinstance(event, ValidationRead) for event in events_of(home, experiment_id)) > 2)

    call(home.root, ChangeSettings(experiment_id=experiment_id, max_slots=1))
    search = await_end(home, experiment_id)

    events = events_of(home, experiment_id)
    attempts = [event for event in events if isinstance(event, AttemptBegun | AttemptOver)]
    assert search.state == "COMPLETED"
    assert [event.reason for event in events if isinstance(event, StopSent)] == [
        "max_slots of its experiment was lowered"
    ]
    assert [type(event) for event in attempts] == [
        AttemptBegun, AttemptBegun, AttemptOver, AttemptOver, AttemptBegun, AttemptOver
    ]  # fmt: skip
    assert attempts[1].request_id == attempts[2].request_id == attempts[4].request_id


OF_RANKS = RANDOM.replace(
    "[python,", "[python, -m, launch.torch_distributed, --nproc_per_node, '2', --, python,"
).replace("max_trials: 2", "max_trials: 1")


def train_on_ranks(validates: str) -> str:
    """Returns a script that validates on the ranks for which the condition is true."""
    return f"""
from core_sdk import core

with core.DistributedContext.from_torch_distributed() as distributed, core.init(distributed=distributed) as context:
    rank = distributed.rank
    for epoch in range(1, 5):
        context.train.report_training_metrics(epoch, {{"loss": 1.0}})
        if {validates}:
            context.train.report_validation_metrics(epoch, {{"loss": rank + 1 / epoch}})
        distributed.allgather(None)
"""


def heard(home: Home, experiment_id: int) -> list[tuple[Source, object]]:
    events = events_of(home, experiment_id)
    return [(event.rank, event.metric) for event in events if isinstance(event, ValidationRead)]


@pytest.mark.parametrize(("validates", "rank"), [("True", 0), ("rank == 1", 1)])
def test_the_search_hears_rank_0_or_the_lowest_rank_that_reports_its_metric(
    home: Home, tmp_path: Path, validates: str, rank: int
) -> None:
    """A search hears each validation once, from rank 0 or the lowest rank that reports the metric."""
    experiment_id = submit_text(home, tmp_path, OF_RANKS, train_on_ranks(validates))

    search = await_end(home, experiment_id)

    assert search.state == "COMPLETED"
    assert heard(home, experiment_id) == [(rank, rank + 1 / epoch) for epoch in range(1, 5)]
    with open_view(home) as view:
        assert view.best_values(experiment_id, "validation", "loss", smaller_is_better=True) == {1: rank + 1 / 4}


OF_WRITER = """
entrypoint: [python, train.py]
max_restarts: 1
searcher: {name: single, metric: accuracy, smaller_is_better: false, writer: evaluator}
"""

EVALUATED = """
import subprocess, sys
from core_sdk import core

EVALUATE = '''
import sys
from core_sdk import core
with core.init(writer="evaluator") as context:
    for step in map(int, sys.argv[1]):
        context.train.report_metrics("other", step, {"accuracy": 0.0})
        context.train.report_validation_metrics(step, {"accuracy": step / 4})
'''
with core.init() as context:
    for steps in ("12", "34"):
        for step in map(int, steps):
            context.train.report_validation_metrics(step, {"accuracy": 7.0})
        subprocess.run([sys.executable, "-c", EVALUATE, steps], check=True)
    if context.info.trial.attempt == 1:
        raise RuntimeError("it is started again")
"""


@pytest.mark.parametrize("max_length", ["", ", max_length: {batches: 4}"])
def test_the_search_hears_the_writer_that_its_configuration_names(home: Home, tmp_path: Path, max_length: str) -> None:
    """A search that names a writer hears its validations, each once, and none of the trial's own script."""
    config = OF_WRITER.replace("writer: evaluator", f"writer: evaluator{max_length}")
    experiment_id = submit_text(home, tmp_path, config, EVALUATED)

    search = await_end(home, experiment_id)

    assert search.state == "COMPLETED"
    assert heard(home, experiment_id) == [("evaluator", step / 4) for step in (1, 2, 3, 4)] * 2
    with open_view(home) as view:
        assert view.best_values(experiment_id, "validation", "accuracy", smaller_is_better=False) == {1: 1.0}


@pytest.mark.parametrize("number", [4, 5])
def test_another_rank_is_heard_once_although_the_master_is_killed(home: Home, tmp_path: Path, number: int) -> None:
    """Validations of another rank are heard once, although the master is killed."""
    Home.create(home.root)
    killed_master = Path(__file__).parent / "killed_master.py"
    subprocess.run([sys.executable, str(killed_master), str(number), "after", "--stay"], check=True, timeout=60)
    experiment_id = submit_text(home, tmp_path, OF_RANKS, train_on_ranks("rank == 1"))
    wait_for(lambda: not is_master_running(home.root))
    num_heard = len(heard(home, experiment_id))
    call(home.root, GetStatus())

    await_end(home, experiment_id)

    assert num_heard == number - 3
    assert heard(home, experiment_id) == [(1, 1 + 1 / epoch) for epoch in range(1, 5)]


@pytest.mark.parametrize(("reported", "state"), [("loss", "COMPLETED"), ("losss", "ERROR")])
def test_a_search_with_lengths_whose_metric_is_mistyped_ends_as_an_error(
    home: Home, tmp_path: Path, reported: str, state: str
) -> None:
    """A search whose script never reports its metric ends as an error."""
    config = RANDOM.replace("max_trials: 2", "max_trials: 2, max_length: 1")
    script = TRAIN.replace('"loss"', f'"{reported}"').replace("range(first, 21)", "range(20, 21)")
    experiment_id = submit_text(home, tmp_path, config, script)

    search = await_end(home, experiment_id)

    assert search.state == state
    events = events_of(home, experiment_id)
    assert sum(isinstance(event, ValidationRead) for event in events) == 1
