"""Scripts of the kinds that people wrote for the predecessor: only their import line is another one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from interfaces.cli.commands import run_cli, start_cli_in

import core_sdk as det
from core_sdk import client
from core_sdk._home import Home

RunScript = Callable[..., tuple[int, str, str]]

METRICS = """
    import logging
    import core_sdk as det

    def main(core_context, increment_by):
        x = 0
        for batch in range(100):
            x += increment_by
            steps_completed = batch + 1
            if steps_completed % 10 == 0:
                core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": x})
                core_context.train.report_progress(steps_completed / 100)
                logging.info(f"x is now {x}")
        core_context.train.report_validation_metrics(steps_completed=steps_completed, metrics={"x": x})

    logging.basicConfig(level=logging.DEBUG, format=det.LOG_FORMAT)
    with det.core.init() as core_context:
        main(core_context=core_context, increment_by=1)
"""

# It asks for its latest checkpoint before it opens a Context, and waits at step 20 to be stopped.
CHECKPOINTS = """
    import pathlib, time
    import core_sdk as det

    def load_state(trial_id, directory):
        x, steps_completed, stored_trial_id = map(int, (directory / "state").read_text().split(","))
        return (x, steps_completed) if stored_trial_id == trial_id else (x, 0)

    def main(core_context, latest_checkpoint, trial_id):
        x = first_batch = 0
        if latest_checkpoint is not None:
            with core_context.checkpoint.restore_path(latest_checkpoint) as path:
                x, first_batch = load_state(trial_id, path)
        print("from", x, first_batch)
        for batch in range(first_batch, 40):
            x += 1
            steps_completed = batch + 1
            if steps_completed % 10 == 0:
                core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": x})
                with core_context.checkpoint.store_path({"steps_completed": steps_completed}) as (path, uuid):
                    path.joinpath("state").write_text(f"{x},{steps_completed},{trial_id}")
                print("step", steps_completed)
                while steps_completed == 20 and not pathlib.Path("go").exists():
                    if core_context.preempt.should_preempt():
                        break
                    time.sleep(0.01)
                if core_context.preempt.should_preempt():
                    return
        core_context.train.report_validation_metrics(steps_completed=steps_completed, metrics={"x": x})

    info = det.get_cluster_info()
    assert info is not None, "this script runs only where something started it"
    with det.core.init() as core_context:
        main(core_context, info.latest_checkpoint, info.trial.trial_id)
"""

# DistributedDataParallel under torchrun: every rank restores, rank 0 alone reports and stores, all ask whether to stop.
DATA_PARALLEL = """
    import pathlib, time
    import torch
    import torch.distributed as dist
    import core_sdk as det
    from torch.nn.parallel import DistributedDataParallel

    def load(path, trial_id):
        checkpoint = torch.load(path / "checkpoint.pt", weights_only=True)
        epochs, stored_trial_id = map(int, path.joinpath("state").read_text().split(","))
        return checkpoint, epochs if stored_trial_id == trial_id else 0

    def main(core_context):
        distributed = core_context.distributed
        info = det.get_cluster_info()
        assert info is not None, "this script runs only where something started it"
        torch.manual_seed(1)
        inputs = torch.arange(40.0).reshape(20, 2) / 40
        targets = inputs @ torch.tensor([[2.0], [-1.0]])
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        first_epoch = 0
        if info.latest_checkpoint is not None:
            with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
                checkpoint, first_epoch = load(path, info.trial.trial_id)
                model.load_state_dict(checkpoint["model"])
        print("from", first_epoch, "local rank", distributed.local_rank, "of", distributed.size)
        parallel_model = DistributedDataParallel(model)
        for epoch in range(first_epoch, 6):
            for batch in range(distributed.rank, 10, distributed.size):
                part = slice(2 * batch, 2 * batch + 2)
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(parallel_model(inputs[part]), targets[part])
                loss.backward()
                optimizer.step()
            steps_completed = (epoch + 1) * 5
            if distributed.rank == 0:
                core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"x": epoch})
                with torch.no_grad():
                    test_loss = torch.nn.functional.mse_loss(model(inputs), targets)
                core_context.train.report_validation_metrics(steps_completed, {"x": epoch, "test_loss": test_loss})
                core_context.train.report_progress((epoch + 1) / 6)
                with core_context.checkpoint.store_path({"steps_completed": steps_completed}) as (path, storage_id):
                    torch.save({"model": model.state_dict()}, path / "checkpoint.pt")
                    path.joinpath("state").write_text(f"{epoch + 1},{info.trial.trial_id}")
                print("epoch", epoch, flush=True)
            dist.barrier()
            while epoch == 2 and not pathlib.Path("go").exists():
                if core_context.preempt.should_preempt():
                    return
                time.sleep(0.01)
            if core_context.preempt.should_preempt():
                return

    dist.init_process_group("gloo")
    with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core_context:
        main(core_context)
    dist.destroy_process_group()
"""

# In the manner of a fine-tuning script: its own event files, and a state that it finds in metadata.json.
FINE_TUNING = """
    import json
    import core_sdk as det

    try:
        distributed = det.core.DistributedContext.from_torch_distributed()
    except KeyError:
        distributed = None

    with det.core.init(distributed=distributed, tensorboard_mode=det.core.TensorboardMode.MANUAL) as core_context:
        directory = core_context.train.get_tensorboard_path()
        (directory / "events.out.tfevents.1.host").write_bytes(b"events")
        (directory / "notes.txt").write_text("not for TensorBoard")
        core_context.train.upload_tensorboard_files(
            selector=lambda path: path.match("*tfevents*"), mangler=lambda path, rank: path.with_suffix(f".{rank}")
        )
        with core_context.checkpoint.store_path({"steps_completed": 7, "epoch_idx": 2}) as (path, storage_id):
            path.joinpath("learned.bin").write_bytes(b"1234")
        with core_context.checkpoint.restore_path(storage_id) as path, path.joinpath("metadata.json").open() as file:
            print("steps", json.load(file)["steps_completed"])
        print("epoch", core_context.checkpoint.get_metadata(storage_id)["epoch_idx"])
        print("ranks", core_context.distributed.gather(core_context.distributed.rank))
        print("shared", core_context.distributed.broadcast_local("path"))
"""

# Detached, on several ranks: each one reports, and adds its own file and its own key to a checkpoint.
DETACHED_RANKS = """
    from core_sdk.experimental import core_v2

    distributed = core_v2.DistributedContext.from_torch_distributed()
    core_v2.init(
        defaults=core_v2.DefaultConfig(name="detached", hparams={"lr": 0.1}, labels=["ranks"]),
        unmanaged=core_v2.UnmanagedConfig(external_experiment_id="june", external_trial_id="first"),
        distributed=distributed,
    )
    rank = core_v2.distributed.rank
    latest = core_v2.info.latest_checkpoint
    first = 0
    if latest is not None:
        with core_v2.checkpoint.restore_path(latest) as path:
            first = int((path / f"rank_{rank}").read_text())
    for step in range(first + 1, first + 5):
        core_v2.train.report_training_metrics(steps_completed=step, metrics={"x": 10 * rank + step})
        core_v2.train.report_progress(step / 8)
        if step % 4 == 0:
            metadata = {"steps_completed": step, f"rank_{rank}": "ok"}
            with core_v2.checkpoint.store_path(metadata, shard=True) as (path, uuid):
                (path / f"rank_{rank}").write_text(str(step))
        if core_v2.preempt.should_preempt():
            break
    if rank == 0:
        print("see", core_v2.url_reverse_webui_exp_view())
    core_v2.close()
"""

# Detached, with a with block instead of a module that is open.
DETACHED_BLOCK = """
    from core_sdk.experimental import core_v2

    config = core_v2.Config(
        name="block", external_experiment_id="july", external_trial_id="first", labels=["some"], description="a block",
        hparams={"lr": 1e-5, "max_epochs": 100},
    )
    with core_v2.init_context(config=config) as core_context:
        print("experiment", core_context.info._trial_info.experiment_id)
        for i in range(100):
            core_context.train.report_training_metrics(steps_completed=i, metrics={"x": i})
            if (i + 1) % 10 == 0:
                core_context.train.report_validation_metrics(steps_completed=i, metrics={"x": i})
            core_context.train.report_progress((i + 1) / 100)
"""

# It starts its own ranks, one for each slot, by the program that marks their output.
OWN_RANKS = """
    import subprocess, sys
    import core_sdk as det

    def launcher_main(slots, num_nodes, node_rank, chief_ip):
        processes = []
        for local_rank in range(slots):
            rank = node_rank * slots + local_rank
            ranks = [rank, slots * num_nodes, local_rank, slots, node_rank, num_nodes]
            worker = [sys.executable, __file__, "worker", *ranks, chief_ip]
            command = [sys.executable, "-m", "core_sdk.launch.wrap_rank", rank, "--", *worker]
            processes.append(subprocess.Popen([str(each) for each in command]))
        return max(process.wait() for process in processes)

    def worker_main(rank, size, local_rank, local_size, cross_rank, cross_size, chief_ip):
        distributed = det.core.DistributedContext(
            rank=rank, size=size, local_rank=local_rank, local_size=local_size, cross_rank=cross_rank,
            cross_size=cross_size, chief_ip=chief_ip,
        )
        with det.core.init(distributed=distributed) as core_context:
            x = 0
            for batch in range(20):
                x += sum(core_context.distributed.allgather(core_context.distributed.rank + 1))
                if batch % 10 == 9:
                    if core_context.distributed.rank == 0:
                        core_context.train.report_training_metrics(steps_completed=batch + 1, metrics={"x": x})
                        with core_context.checkpoint.store_path({"steps_completed": batch + 1}) as (path, uuid):
                            (path / "state").write_text(str(x))
                    if core_context.preempt.should_preempt():
                        return

    if sys.argv[1:2] == ["worker"]:
        worker_main(*map(int, sys.argv[2:8]), sys.argv[8])
    else:
        info = det.get_cluster_info()
        assert info is not None
        sys.exit(launcher_main(
            len(info.slot_ids), len(info.container_addrs), info.container_rank, info.container_addrs[0]
        ))
"""

# A program of trials, as a tuner's worker runs them: each in a function that always closes what it opened.
TRIALS = """
    from core_sdk.experimental import core_v2

    def train(name, lr):
        core_v2.init(
            config=core_v2.Config(
                name="tuned",
                hparams={"lr": lr},
                external_experiment_id="search",
                external_trial_id=name,
                searcher={"name": "custom", "metric": "x", "smaller_is_better": False},
            )
        )
        try:
            for step in range(1, 4):
                core_v2.train.report_validation_metrics(steps_completed=step, metrics={"x": lr * step})
            with core_v2.checkpoint.store_path({"steps_completed": step, "epoch_idx": 2}) as (path, uuid):
                (path / "model").write_text(name)
            assert core_v2.checkpoint.get_metadata(uuid)["epoch_idx"] == 2
            return core_v2.info.trial.hparams["lr"]
        finally:
            core_v2.close()

    print([train(name, lr) for name, lr in (("a", 1.0), ("b", 3.0), ("c", 2.0))])
"""

# What somebody asks in a notebook after a search.
ANALYSIS = """
    import json, pathlib
    from core_sdk.experimental import client
    from core_sdk.experimental.client import ExperimentState, OrderBy, TrialSortBy

    client.login()
    experiment = client.list_experiments(name="tuned")[0]
    assert experiment.wait() == ExperimentState.COMPLETED
    assert experiment.config["searcher"]["metric"] == "x"
    print(experiment.id, experiment.state.value, experiment.config["hyperparameters"]["lr"]["val"])

    trials = experiment.list_trials(sort_by=TrialSortBy.BEST_VALIDATION_METRIC, order_by=OrderBy.DESCENDING)
    print([(trial.id, trial.hparams["lr"]) for trial in trials])
    print([metrics.metrics["x"] for metrics in client.iter_trials_metrics([trials[0].id], "validation")])

    best = experiment.list_checkpoints(max_results=1)[0]
    assert best.uuid == experiment.top_checkpoint().uuid == trials[0].select_checkpoint(best=True).uuid
    print(best.training.trial_id, best.training.validation_metrics["avgMetrics"], best.state.value)
    best.add_metadata({"chosen": True})
    path = pathlib.Path(best.download(mode=client.DownloadMode.AUTO))
    print(path, (path / "model").read_text(), json.loads((path / "metadata.json").read_text())["epoch_idx"])
    experiment.add_label("analysed")
    print(client.get_experiment(experiment.id).labels, client.get_checkpoint(best.uuid).metadata["chosen"])
"""

TORCHRUN = {
    "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
}  # fmt: skip


def curve(trial_id: int, group: str = "training") -> list[tuple[int, int | None, float]]:
    """Returns attempt, step and x of each report."""
    reports = client.get_trial(trial_id).iter_metrics(group)
    return [(report.trial_run_id, report.steps_completed, report.metrics["x"]) for report in reports]


def as_torchrun_does(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in (TORCHRUN | variables).items():
        monkeypatch.setenv(name, value)


def test_a_script_that_reports_runs_where_it_stands(run_script: RunScript) -> None:
    """A script that reports metrics runs unchanged without a cluster."""
    status, _, errors = run_script(METRICS)

    assert status == 0, errors
    assert "root: x is now 100" in errors
    assert curve(1) == [(1, 10 * tenth, 10 * tenth) for tenth in range(1, 11)]
    assert curve(1, "validation") == [(1, 100, 100)]


def test_a_script_that_insists_on_a_cluster_finds_one_under_core_sdk_run(tmp_path: Path) -> None:
    """Paused, resumed and continued, it tells the two continuations apart by the trial's id."""
    script = tmp_path / "train.py"
    script.write_text("\n".join(line[4:] for line in CHECKPOINTS.splitlines()))
    run = start_cli_in(tmp_path, "run", "--", sys.executable, str(script))
    run.read_until("step 20")

    paused = run_cli(tmp_path, "trial", "pause", "1", "--wait")
    run.wait()
    (tmp_path / "go").touch()
    resumed = run_cli(tmp_path, "trial", "resume", "1")
    continued = run_cli(tmp_path, "trial", "continue", "1")

    assert paused.status == resumed.status == continued.status == 0
    assert resumed.output.splitlines() == ["from 20 20", "step 30", "step 40"]
    assert continued.output.splitlines() == ["from 40 0", "step 10", "step 20", "step 30", "step 40"]
    assert curve(1) == [(1, 10, 10), (1, 20, 20), (2, 30, 30), (2, 40, 40)]
    assert curve(2, "validation") == [(1, 40, 80)]


def test_a_data_parallel_script_is_paused_and_goes_on_on_two_ranks(tmp_path: Path) -> None:
    """A data-parallel script can be paused and resumed on two ranks with the renamed launcher."""
    script = tmp_path / "train.py"
    script.write_text("\n".join(line[4:] for line in DATA_PARALLEL.splitlines()))
    launcher = [sys.executable, "-m", "core_sdk.launch.torch_distributed", "--nproc-per-node=2"]
    run = start_cli_in(tmp_path, "run", "--slots", "2", "--", *launcher, "--", sys.executable, str(script))
    run.read_until("[rank=0] epoch 2")

    paused = run_cli(tmp_path, "trial", "pause", "1", "--wait")
    run.wait()
    (tmp_path / "go").touch()
    resumed = run_cli(tmp_path, "trial", "resume", "1")

    assert paused.status == resumed.status == 0, resumed.errors
    begun = sorted(line for line in resumed.output.splitlines() if "from" in line)
    assert begun == [f"[rank={rank}] from 3 local rank {rank} of 2" for rank in (0, 1)]
    assert curve(1) == [(1 if epoch < 3 else 2, 5 * (epoch + 1), epoch) for epoch in range(6)]
    losses = [report.metrics["test_loss"] for report in client.get_trial(1).iter_metrics("validation")]
    assert losses == sorted(losses, reverse=True)
    assert len(client.get_trial(1).list_checkpoints()) == 6
    assert list(client.get_trial(1).iter_metrics(rank=1)) == []


def test_a_script_that_falls_back_to_one_process_does_so(home: Home, run_script: RunScript) -> None:
    """A script that falls back to one process runs without torchrun."""
    status, output, errors = run_script(FINE_TUNING)

    assert status == 0, errors
    assert output.splitlines() == ["steps 7", "epoch 2", "ranks [0]", "shared path"]
    shown = [path.name for path in home.trial(1).tensorboard_path.iterdir()]
    assert shown == ["events.out.tfevents.1.0"]


def test_a_detached_script_goes_on_with_its_trial_on_several_ranks(tmp_path: Path, home: Home) -> None:
    """A detached script continues its trial on several ranks by its external ids."""
    script = tmp_path / "train.py"
    script.write_text("\n".join(line[4:] for line in DETACHED_RANKS.splitlines()))

    for _ in range(2):
        command = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--", str(script)]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr

    assert f"see {home.experiment(1).path.as_uri()}" in ended.stdout
    assert [attempt for attempt, *_ in curve(1)] == [1] * 4 + [2] * 4
    assert [(step, x) for _, step, x in curve(1)] == [(step, step) for step in range(1, 9)]
    of_rank_1 = [
        (one.trial_run_id, one.steps_completed, one.metrics) for one in client.get_trial(1).iter_metrics(rank=1)
    ]
    assert of_rank_1 == [(1 if step < 5 else 2, step, {"x": 10 + step}) for step in range(1, 9)]
    newest = client.get_trial(1).list_checkpoints()[0]
    assert newest.metadata == {"steps_completed": 8, "rank_0": "ok", "rank_1": "ok"}
    assert {"rank_0", "rank_1"} < newest.resources.keys()
    assert client.get_experiment("detached/june").labels == {"ranks"}


def test_a_detached_script_may_use_a_block(run_script: RunScript, home: Home) -> None:
    """A detached script may use a with block."""
    status, output, errors = run_script(DETACHED_BLOCK)

    assert (status, output) == (0, "experiment 1\n"), errors
    assert [step for _, step, _ in curve(1)] == list(range(100))
    assert len(curve(1, "validation")) == 10
    assert home.trial(1).read_record().hparams == {"lr": 1e-5, "max_epochs": 100}


def test_a_script_that_starts_its_own_ranks_does_so_on_its_slots(tmp_path: Path) -> None:
    """A script that starts its own ranks finds its slots and `wrap_rank`."""
    script = tmp_path / "train.py"
    script.write_text("\n".join(line[4:] for line in OWN_RANKS.splitlines()))

    ended = run_cli(tmp_path, "run", "--slots", "2", "--", sys.executable, str(script))

    assert ended.status == 0, ended.output + ended.errors
    assert curve(1) == [(1, 10, 30), (1, 20, 60)]
    assert len(client.get_trial(1).list_checkpoints()) == 2


def test_a_search_of_ones_own_is_recorded_and_analysed(run_script: RunScript, tmp_path: Path) -> None:
    """A search in one process is recorded and can be analysed with the client."""
    searched, hparams, search_errors = run_script(TRIALS)
    analysed, answers, errors = run_script(ANALYSIS, name="analysis.py")

    assert (searched, hparams) == (0, "[1.0, 3.0, 2.0]\n"), search_errors
    assert analysed == 0, errors
    best = client.get_trial(2).list_checkpoints()[0].uuid
    assert answers.splitlines() == [
        "1 STATE_COMPLETED 1.0",
        "[(2, 3.0), (3, 2.0), (1, 1.0)]",
        "[3.0, 6.0, 9.0]",
        "2 {'x': 9.0} STATE_COMPLETED",
        f"checkpoints/{best} b 2",
        "frozenset({'analysed'}) True",
    ]


@pytest.mark.parametrize("framework", ["from_torch_distributed", "from_deepspeed"])
def test_a_script_for_any_framework_runs_without_its_launcher(framework: str, run_script: RunScript) -> None:
    """A script for a launcher catches the KeyError and trains alone."""
    source = f"""
        import core_sdk as det

        try:
            distributed = det.core.DistributedContext.{framework}()
        except KeyError:
            distributed = None
        with det.core.init(distributed=distributed) as core_context:
            core_context.train.report_training_metrics(steps_completed=1, metrics={{"x": 1}})
            print(core_context.distributed.size)
    """

    assert run_script(source)[:2] == (0, "1\n")
    assert curve(1) == [(1, 1, 1)]


def test_torchrun_with_one_process_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under torchrun with one process, a script is a single rank."""
    as_torchrun_does(monkeypatch)

    with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as context:
        assert (context.distributed.rank, context.distributed.size, context.distributed.local_rank) == (0, 1, 0)
        assert context.distributed.allgather("x") == ["x"]


@pytest.mark.parametrize("name", sorted(TORCHRUN))
def test_a_missing_rank_variable_is_a_key_error_that_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing variable of torchrun is a KeyError that names it."""
    as_torchrun_does(monkeypatch)
    monkeypatch.delenv(name)

    with pytest.raises(KeyError, match=rf"\b{name} is not set"):
        det.core.DistributedContext.from_torch_distributed()


@pytest.mark.parametrize("framework", ["torch_distributed", "deepspeed"])
def test_a_script_that_needs_its_launcher_says_what_to_type(framework: str) -> None:
    """Without its launcher, the error says which command to type."""
    with pytest.raises(KeyError, match=rf"Type `python -m launch\.{framework} .*-- python SCRIPT`"):
        getattr(det.core.DistributedContext, f"from_{framework}")()


@pytest.mark.parametrize("value", ["", "one", "1.0"])
def test_a_rank_variable_that_is_no_number_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank variable that is no number is refused by name."""
    as_torchrun_does(monkeypatch, WORLD_SIZE=value)

    with pytest.raises(ValueError, match=f"WORLD_SIZE is '{value}'"):
        det.core.DistributedContext.from_torch_distributed()


def test_several_ranks_that_know_nothing_of_each_other_are_refused(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    """Several ranks without a DistributedContext are refused."""
    as_torchrun_does(monkeypatch, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")

    with pytest.raises(ValueError, match=r'2 ranks were started, .*init\(distributed="torch"\)'):
        det.core.init()

    assert not home.runs.exists()


def test_one_rank_may_be_told_where_its_chief_is() -> None:
    """Scripts that start their own workers pass the address to each, also where there is one."""
    distributed = det.core.DistributedContext(
        rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1, chief_ip="127.0.0.1"
    )

    assert distributed.broadcast("x") == "x"


def test_a_trainers_output_directory_goes_up_and_down(tmp_path: Path) -> None:
    """A callback restores the latest checkpoint into the directory from which it then uploads the next ones."""
    first, second = tmp_path / "first", tmp_path / "second"
    for name in ("checkpoint-5/model.bin", "runs/events", "cache/scratch"):
        (first / name).parent.mkdir(parents=True)
        (first / name).write_text(name)

    with det.core.init() as context:
        latest = context.checkpoint.upload(
            str(first), metadata={"steps_completed": 5}, shard=True,
            selector=lambda name: name.startswith(("checkpoint-5/", "runs/")),
        )  # fmt: skip
        context.checkpoint.download(latest, str(second))
        (second / "checkpoint-10").mkdir()
        (second / "checkpoint-10" / "model.bin").write_text("10")
        newest = context.checkpoint.upload(
            str(second), metadata={"steps_completed": 10}, shard=True,
            selector=lambda name: name.startswith(("checkpoint-10/", "runs/")),
        )  # fmt: skip

        with context.checkpoint.restore_path(newest, "NO_SHARED_DOWNLOAD") as path:  # type: ignore[arg-type]
            names = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
        assert names - {"metadata.json", ".manifest.json"} == {"checkpoint-10/model.bin", "runs/events"}
        assert context.checkpoint.get_metadata(newest) == {"steps_completed": 10}


def test_a_checkpoint_may_begin_as_a_copy_of_another() -> None:
    """Copied, linked or downloaded into the new one's directory: the old metadata and manifest stay the old one's."""
    with det.core.init() as context:
        checkpoint = context.checkpoint
        with checkpoint.store_path({"steps_completed": 1, "of": "the first"}) as (path, first):
            (path / "model.bin").write_text("model")
        with checkpoint.restore_path(first) as old, checkpoint.store_path({"steps_completed": 2}) as (path, copied):
            shutil.copytree(old, path, dirs_exist_ok=True)
        with checkpoint.restore_path(first) as old, checkpoint.store_path({"steps_completed": 3}) as (path, linked):
            shutil.copytree(old, path, copy_function=os.link, dirs_exist_ok=True)
        with checkpoint.store_path({"steps_completed": 4}) as (path, downloaded):
            checkpoint.download(first, path)

        for storage_id, steps_completed in ((first, 1), (copied, 2), (linked, 3), (downloaded, 4)):
            with checkpoint.restore_path(storage_id) as path:
                assert (path / "model.bin").read_text() == "model"
            assert checkpoint.get_metadata(storage_id)["steps_completed"] == steps_completed
        assert checkpoint.get_metadata(first).keys() - checkpoint.get_metadata(downloaded).keys() == {"of"}


def test_hyperparameters_come_from_the_context_where_no_search_gives_them() -> None:
    """Without a search, hyperparameters and length come from the call of init()."""
    with det.core.init(hparams={"increment_by": 2}, max_length={"epochs": 3}) as context:
        x = 0
        for operation in context.searcher.operations():
            for epoch in range(operation.length):
                x += context.info.trial.hparams["increment_by"]
                context.train.report_validation_metrics(steps_completed=epoch + 1, metrics={"x": x, "epochs": epoch})
                operation.report_progress(epoch + 1)
            operation.report_completed(x)

    assert curve(1, "validation") == [(1, 1, 2), (1, 2, 4), (1, 3, 6)]


def test_the_info_has_the_private_attributes_that_scripts_read() -> None:
    """Private attributes that the predecessor's examples read exist."""
    with det.core.init() as context:
        info = context.info

        assert info._trial_info is not None
        assert info._trial_info.experiment_id == info.trial.experiment_id == 1
        assert (info.trial._config, info.trial._steps_completed, info.trial._trial_run_id) == ({}, 0, 1)


def test_modes_may_be_given_by_their_values() -> None:
    """Modes may be given as strings in every call."""
    with det.core.init(preempt_mode="CHIEF_ONLY", tensorboard_mode="MANUAL") as context:  # type: ignore[arg-type]
        assert not context.preempt.should_preempt()
        context.train.upload_tensorboard_files()
        context.train.report_early_exit("EXITED_REASON_INVALID_HP")  # type: ignore[arg-type]
        for operation in context.searcher.operations("CHIEF_ONLY"):  # type: ignore[arg-type]
            operation.report_completed(1.0)


def test_a_launcher_is_started_by_its_renamed_module(tmp_path: Path) -> None:
    """A launcher can be started by its renamed module."""
    (tmp_path / "train.py").write_text("import os; print('rank', os.environ['RANK'])")
    command = [sys.executable, "-m", "core_sdk.launch.torch_distributed", "--nproc-per-node=1", "--", "train.py"]

    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["[rank=0] rank 0"]), ended.stderr
