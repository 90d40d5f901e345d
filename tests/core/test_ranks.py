"""The same script on one rank or on several: each rank's reports are kept, and the chief speaks for the attempt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from core.rank_processes import Ranks, codes, the_trial
from parts import needs, require
from processes import Script
from promises import promise

from core_sdk._home import Home
from core_sdk.client import Tracker, TrialMetrics


@pytest.fixture
def run_command(tmp_path: Path) -> Callable[..., str]:
    """Returns a function that runs `core-sdk` with these arguments and returns its output."""

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments]
        finished = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"COLUMNS": "200"}
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run


@promise("chief-speaks")
def test_every_rank_calls_and_the_chief_tells_of_the_attempt(ranks: Ranks, home: Home) -> None:
    """On ranks other than the chief, calls about the attempt do nothing and give one warning."""
    ended = ranks.run("""
        with core.init(distributed=distributed, max_length=3) as context:
            context.train.set_status(f"of {rank}")
            assert context.train.set_metadata({"rank": rank}) == {"rank": rank}
            context.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)
            context.alert("title", f"alert of {rank}")
            for operation in context.searcher.operations():
                assert operation.length == 3
                if rank == 0:
                    operation.report_progress(2)
                    operation.report_completed(0.5)
            assert context.info.trial.trial_id == 1
    """)

    trial = the_trial()
    assert codes(ended) == [0, 0], ended
    assert (trial.state.name, trial.status, trial.metadata) == ("COMPLETED", "of 0", {"rank": 0})
    assert home.trial(1).other_journals() == []
    assert ended[1].errors.count("said once") == 1
    assert "WARNING rank 1 told what is not recorded" in ended[1].errors
    assert "said once" not in ended[0].errors
    assert "alert of 0" in ended[0].errors
    assert "alert of 1" not in ended[1].errors


def told(reports: Iterable[TrialMetrics]) -> list[tuple[object, ...]]:
    return [(one.rank, one.group, one.steps_completed, *one.metrics.values()) for one in reports]


@promise("ranks-report")
def test_each_report_is_kept_with_its_rank(ranks: Ranks, run_command: Callable[..., str]) -> None:
    """Two ranks may report the same step, and readers see rank 0 unless they ask for another."""
    ended = ranks.run("""
        with core.init(distributed=distributed) as context:
            for step in (1, 2):
                context.train.report_training_metrics(step, {"loss": float(rank)}, [{"loss": 0.5}])
            context.train.report_metrics("other", 2, {"x": rank, "text": f"of {rank}"})
    """)

    trial = the_trial()
    of_0, of_1 = (
        [(rank, "training", 1, rank), (rank, "training", 2, rank), (rank, "other", 2, rank, f"of {rank}")]
        for rank in (0, 1)
    )
    assert codes(ended) == [0, 0], ended
    assert "said once" not in ended[1].errors
    assert told(trial.iter_metrics()) == told(trial.iter_metrics(rank=0)) == of_0
    assert told(trial.iter_metrics(rank=1)) == of_1
    assert sorted(told(trial.iter_metrics(rank="all")), key=str) == sorted(of_0 + of_1, key=str)
    assert trial.metrics_frame("training")["rank"] == [0, 0]
    assert trial.metrics_frame("training", rank="all")["rank"] == [0, 1, 0, 1]
    as_json = json.loads(run_command("trial", "metrics", "1", "--rank", "1", "--json"))
    assert [(row["rank"], row["metrics"]) for row in as_json][-1] == (1, {"x": 1, "text": "of 1"})


def test_ranks_that_take_turns_lose_no_report(ranks: Ranks) -> None:
    """When ranks take turns to report, every step is kept, and a validation by another rank counts."""
    ended = ranks.run("""
        with core.init(distributed=distributed) as context:
            for step in range(100):
                if step % size == rank:
                    context.train.report_training_metrics(step, {"loss": 1.0 / (step + 1)})
                    if (step + 1) % 10 == 0:
                        context.train.report_validation_metrics(step, {"loss": 1.0 / (step + 1)})
            distributed.allgather(None)
            assert context.train.get_experiment_best_validation() == 0.01
    """)

    trial = the_trial()
    assert codes(ended) == [0, 0], ended
    assert [one.steps_completed for one in trial.iter_metrics("training", rank="all")] == list(range(100))
    assert [one.steps_completed for one in trial.iter_metrics("training")] == list(range(0, 100, 2))
    assert [(one.rank, one.steps_completed) for one in trial.iter_metrics("validation")] == [
        (1, step) for step in range(9, 100, 10)
    ]
    assert trial.summary_metrics["validation"]["loss"]["min"] == 0.01


@promise("ranks-report")
@pytest.mark.parametrize("victim", [0, 1])
def test_what_a_killed_rank_has_reported_is_there(ranks: Ranks, home: Home, victim: int) -> None:
    """All reports that had returned before any rank was killed are kept."""
    started = ranks.start(f"""
        with core.init(distributed=distributed) as context:
            step = 0
            while rank == {victim}:
                step += 1
                context.train.report_training_metrics(step, {{"loss": step / 2}})
                print(step, flush=True)
            distributed.allgather(None)
    """)
    output = started[victim].stdout
    assert output is not None
    acknowledged = [output.readline() for _ in range(500)]
    started[victim].kill()
    last = int([*acknowledged, *output.read().splitlines()][-1])
    for process in started:
        process.wait()

    reported = [(one.rank, one.steps_completed) for one in the_trial().iter_metrics(rank="all")]
    assert reported[:last] == [(victim, step) for step in range(1, last + 1)]
    assert len(reported) <= last + 1


def test_a_resume_supersedes_what_every_rank_has_reported(ranks: Ranks, home: Home) -> None:
    """A resume supersedes the reports of every rank beyond its checkpoint."""
    source = """
        with core.init(distributed=distributed, job_id="resumed") as context:
            is_resumed = context.info.latest_checkpoint is not None
            for step in [2] if is_resumed else [1, 2, 3]:
                context.train.report_training_metrics(step, {"loss": float(step + 10 * rank)})
                if step == 1 and rank == 0:
                    with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
                        (path / "state").write_text("x")
                distributed.allgather(None)
            sys.exit(0 if is_resumed else 7)
    """
    first = ranks.run(source)

    second = ranks.run(source)

    trial = the_trial()
    assert (codes(first), codes(second)) == ([7, 7], [0, 0]), (first, second)
    assert told(trial.iter_metrics(rank="all")) == [
        (0, "training", 1, 1.0),
        (1, "training", 1, 11.0),
        (0, "training", 2, 2.0),
        (1, "training", 2, 12.0),
    ]
    superseded = [one for one in trial.iter_metrics(rank="all", superseded=True) if one.is_superseded]
    assert [(one.rank, one.steps_completed) for one in superseded] == [(0, 2), (1, 2), (0, 3), (1, 3)]


def test_what_cannot_be_reported_is_refused_on_every_rank(ranks: Ranks) -> None:
    """Bad reports raise the same errors on every rank."""
    ended = ranks.run("""
        def refused(call):
            try:
                call()
            except Exception as error:
                return type(error).__name__

        with core.init(distributed=distributed) as context:
            train = context.train
            train.report_training_metrics(1, {"loss": 0.5})
            calls = [
                lambda: train.report_training_metrics(2, {"loss": "low"}),
                lambda: train.report_training_metrics(1, {"loss": 0.4}),
                lambda: train.report_training_metrics(-1, {"loss": 0.4}),
                lambda: train.report_training_metrics(1.5, {"loss": 0.4}),
                lambda: train.report_progress(1.5),
                lambda: train.set_metadata({"a": object()}),
                lambda: train.report_early_exit("tired"),
                lambda: context.alert("a", level="loud"),
                lambda: context.profiler.on(sampling_interval=0),
            ]
            print(*map(refused, calls))
        print(refused(lambda: train.set_status("late")))
    """)

    names = "InvalidMetricError DuplicateMetricError ValueError TypeError ValueError TypeError ValueError ValueError"
    assert [one.output for one in ended] == [f"{names} ValueError\nJournalError\n"] * 2, ended


def test_every_rank_has_its_progress(ranks: Ranks, run_command: Callable[..., str]) -> None:
    """Each rank's progress is shown, and the trial's progress is the chief's."""
    ended = ranks.run("""
        with core.init(distributed=distributed) as context:
            context.train.report_progress(0.75 if rank == 0 else 0.5)
    """)

    described = json.loads(run_command("trial", "describe", "1", "--json"))
    assert codes(ended) == [0, 0], ended
    assert described["progress"] == 0.75
    assert [(row["rank"], row["progress"]) for row in described["ranks"]] == [(0, 0.75), (1, 0.5)]
    text = run_command("trial", "describe", "1")
    assert "75%, 1 (" in " ".join(text.split())
    assert [(row.rank, row.progress) for row in the_trial().ranks] == [(0, 0.75), (1, 0.5)]


def test_each_node_is_profiled_by_its_first_rank(ranks: Ranks, run_command: Callable[..., str]) -> None:
    """Each node is profiled once, by its first rank, and its figures carry that rank."""
    ended = ranks.run(
        """
        journal = Path(os.environ["CORE_SDK_HOME"], "runs/1", "1.rank2.journal" if rank else "1.journal")
        with core.init(distributed=distributed) as context:
            context.profiler.on(sampling_interval=0.1, samples_per_report=1)
            while rank in (0, 2) and not (journal.exists() and b'"cpu"' in journal.read_bytes()):
                time.sleep(0.01)
            distributed.allgather(None)
            context.profiler.off()
        """,
        size=4,
        num_nodes=2,
    )

    assert codes(ended) == [0, 0, 0, 0], ended
    assert {metrics.rank for metrics in the_trial().iter_metrics("cpu")} == {0, 2}
    assert {row["rank"] for row in json.loads(run_command("trial", "metrics", "1", "--group", "cpu", "--json"))} == {
        0,
        2,
    }
    assert "Rank" in run_command("trial", "metrics", "1", "--group", "cpu")
    assert set(the_trial().metrics_frame("memory")["rank"]) == {0, 2}
    assert "said once" not in "".join(one.errors for one in ended)


def test_every_rank_may_ask_what_is_recorded(ranks: Ranks, home: Home) -> None:
    """A rank that sees the home can read metadata and the best validation and write event files."""
    ended = ranks.run("""
        mode = core.TensorboardMode.MANUAL
        with core.init(distributed=distributed, tensorboard_mode=mode, data={"fold": 3}) as context:
            if rank == 0:
                context.train.set_metadata({"a": 1})
                context.train.report_validation_metrics(1, {"loss": 0.25})
            distributed.allgather(None)
            assert context.train.get_metadata() == {"a": 1}
            assert context.train.get_experiment_best_validation() == 0.25
            assert context.info.user_data == {"fold": 3}
            (context.train.get_tensorboard_path() / "events").write_text(f"of {rank}")
            distributed.allgather(None)
            context.train.upload_tensorboard_files(mangler=lambda path, rank: Path(f"{path}.{rank}"))
    """)

    shown = home.trial(1).tensorboard_path
    assert codes(ended) == [0, 0], ended
    assert {path.name: path.read_text() for path in shown.iterdir()} == {"events.0": "of 0", "events.1": "of 1"}


def test_searcher_operations_are_the_chiefs(ranks: Ranks) -> None:
    """Other ranks see the chief's lengths but may not complete operations, and do not hang if the chief does not."""
    ended = ranks.run("""
        with core.init(distributed=distributed, max_length=7 if rank == 0 else 3) as context:
            for operation in context.searcher.operations():
                print(operation.length)
                for call in (operation.report_progress, operation.report_completed):
                    try:
                        if rank == 1:
                            call(1)
                    except RuntimeError as error:
                        print(error)
            print("left the loop")
            try:
                next(context.searcher.operations(core.SearcherMode.ChiefOnly))
            except RuntimeError as error:
                print(error)
    """)

    assert "report_completed" in ended[0].errors
    assert (ended[0].code, ended[0].output) == (1, "7\n")
    assert ended[1].output.splitlines() == [
        "7",
        "only the chief calls report_progress()",
        "only the chief calls report_completed()",
        "left the loop",
        "in SearcherMode.ChiefOnly only the chief asks for operations",
    ]


def test_all_ranks_use_the_chiefs_home(ranks: Ranks, home: Home, tmp_path: Path) -> None:
    """All ranks use the chief's home, and a home in another rank's environment is not created."""
    elsewhere = tmp_path / "elsewhere"

    ended = ranks.run(
        """
        with core.init(distributed=distributed) as context:
            context.train.report_progress(0.5)
            metadata = {"steps_completed": 1}
            with context.checkpoint.store_path(metadata, shard=True) as (path, storage_id):
                (path / f"part-{rank}").write_text("x")
        """,
        variables={1: {"CORE_SDK_HOME": str(elsewhere)}},
    )

    assert codes(ended) == [0, 0], ended
    assert not elsewhere.exists()
    assert home.trial(1).other_journals() == [(1, 1)]
    (checkpoint,) = the_trial().list_checkpoints()
    assert sorted(checkpoint.resources) == ["metadata.json", "part-0", "part-1"]


ON_A_NODE_OF_ITS_OWN = """
    with core.init(distributed=distributed, preempt_mode=core.PreemptMode.WorkersAskMaster) as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
        context.train.report_progress(0.5)
        context.profiler.on(sampling_interval=0.1, samples_per_report=1)
        context.preempt.should_preempt()
        while rank == 0 and b'"cpu"' not in Path(os.environ["CORE_SDK_HOME"], "runs/1/1.journal").read_bytes():
            time.sleep(0.01)
        if rank == 1:
            for ask in (context.train.get_metadata, context.train.get_experiment_best_validation):
                try:
                    ask()
                except HomeError as error:
                    print(error)
            (context.train.get_tensorboard_path() / "events").write_text("x")
            print(context.train.get_tensorboard_path())
        context.profiler.off()
        distributed.allgather(None)
"""


@pytest.fixture
def hides(tmp_path: Path) -> Callable[[Path, str], list[str]]:
    """Returns a wrapper that runs a command with an empty file system at a path, as on another node."""

    def wrapper(path: Path, first: str) -> list[str]:
        require("hosts")
        path.mkdir()
        return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs tmpfs "{path}" && {first} && exec "$@"', "sh"]

    return wrapper


@promise("chief-speaks")
@needs("hosts")
def test_a_node_that_does_not_see_the_home_records_nothing(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hides: Callable[[Path, str], list[str]]
) -> None:
    """A rank that does not see the home trains, and calls that it cannot answer raise errors that say so."""
    disk = tmp_path / "disk"
    wrapper = hides(disk, "true")
    monkeypatch.setenv("CORE_SDK_HOME", str(disk / "home"))

    chief, other = ranks.run(ON_A_NODE_OF_ITS_OWN, num_nodes=2, wrappers={1: wrapper})

    assert (chief.code, other.code) == (0, 0), (chief, other)
    lines = other.output.splitlines()
    assert f"get_metadata() cannot answer on rank 1, whose node does not see the home {disk}/home" in lines[0]
    assert "get_experiment_best_validation()" in lines[1]
    assert Path(lines[2], "events").read_text() == "x"
    assert other.errors.count("event files of rank 1 are not kept") == 1
    assert other.errors.count("said once") == 1
    assert "rank 1 keeps no reports, no progress and no figures" in other.errors
    trial = Tracker(disk / "home").get_trial(1)
    assert (trial.state.name, trial.ranks) == ("COMPLETED", ())
    assert {metrics.rank for metrics in trial.iter_metrics("cpu")} == {0}


@needs("hosts")
def test_another_home_at_the_same_place_is_left_alone(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hides: Callable[[Path, str], list[str]]
) -> None:
    """A node's own home at the same path is not written to, even if it has a trial of the same number."""
    disk = tmp_path / "disk"
    journals = f'"{disk}"/home/runs/1'
    foreign = "from core_sdk import core; core.init(name='foreign').close()"
    wrapper = hides(disk, f'{sys.executable} -c "{foreign}"')
    look = f"""
        if rank == 1:
            print(*sorted(path.name for path in Path({str(disk)!r}, "home/runs/1").iterdir()), sep=",")
    """
    monkeypatch.setenv("CORE_SDK_HOME", str(disk / "home"))

    chief, other = ranks.run(ON_A_NODE_OF_ITS_OWN + look.replace("\n    ", "\n"), num_nodes=2, wrappers={1: wrapper})

    assert (chief.code, other.code) == (0, 0), (chief, other, journals)
    assert other.output.splitlines()[-1] == "1.alive,1.journal,command.json,trial.json"


def test_a_script_is_the_same_on_one_rank(start_script: Callable[..., Script], tmp_path: Path) -> None:
    """A script for several ranks also runs on a single rank without a launcher."""
    script = start_script("""
        from core_sdk import core

        try:
            distributed = core.DistributedContext.from_torch_distributed()
        except KeyError:
            distributed = None
        with core.init(distributed=distributed, max_length=1) as context:
            context.train.report_training_metrics(1, {"loss": 0.5})
            for operation in context.searcher.operations():
                if context.distributed.rank == 0:
                    operation.report_completed(0.5)
            assert context.distributed.allgather("a") == ["a"]
    """)

    assert script.wait()[0] == 0
    assert the_trial().state.name == "COMPLETED"
