"""Trainings on several workers, on each engine."""

from __future__ import annotations

import signal

import psutil
import pytest
from execution.workers.programs import Programs
from interfaces.cli.commands import WarmCli
from processes import wait_for
from promises import promise

from core_sdk import client
from core_sdk._ground.records import STOPPED_BY_SEARCHER
from core_sdk._home import Home

# They start several processes that import torch.
COUNT = """
def count(config):
    for step in range(first_step(), config["num_steps"]):
        report(step, {"step": str(step), f"rank{rank()}": str(step)})
        if step == config.get("fail_at") and rank() == config["failing"] and step > config.get("resumed", -1):
            config["fail"]() if "fail" in config else os.kill(os.getpid(), signal.SIGKILL)
        if step == config.get("last_line"):
            print("at", step, flush=True)
            time.sleep(60)
"""


def test_all_reports_and_checkpoints_of_all_ranks_are_kept(trainings: Programs) -> None:
    """A thousand reports without a checkpoint, too, and the files of each rank."""
    trainings.run("""
        def function(config):
            for step in range(1000):
                train.report({"loss": 1.0 / (step + 1)})
            report(1000, {"model": "same", f"shard{rank()}": str(rank())})
            assert train.get_checkpoint() is not None
            context = train.get_context()
            assert os.environ["ACCELERATE_TORCH_DEVICE"] == str(train.torch.get_device()) == "cpu"
            return [context.get_world_size(), context.get_world_rank(), context.get_local_world_size(), config["lr"]]

        result = fit(function, {"lr": 0.5})
        assert result.return_value == [2, 0, 2, 0.5]
        assert len(result.metrics_dataframe) == 1001
        with result.checkpoint.as_directory() as directory:
            assert sorted(os.listdir(directory)) == [".manifest.json", "metadata.json", "model", "shard0", "shard1"]
        trial = client.get_trial(result.trial_id)
        assert trial.state.name == "COMPLETED"
        assert trial.hparams == {"lr": 0.5}
    """)


@promise("fit-goes-on")
def test_a_worker_that_is_killed_after_a_report_loses_nothing(trainings: Programs) -> None:
    """When a worker of any rank is killed after a report, a new attempt goes on from that report's checkpoint."""
    trainings.run(
        COUNT
        + """
for failing in (0, 1):
    def die():
        mark(f"died{failing}")
        os.kill(os.getpid(), signal.SIGKILL)

    def function(config):
        if train.get_checkpoint() is not None:
            print("resumed at", first_step(), flush=True)
            config["resumed"] = first_step()
        count(config)

    result = fit(function, {"num_steps": 5, "fail_at": 2, "failing": failing}, max_failures=1)
    assert [row["step"] for row in result.metrics_dataframe.to_dict("records")] == [0, 1, 2, 3, 4]
    assert len(client.get_trial(result.trial_id).list_checkpoints()) == 5
"""
    )


@pytest.mark.parametrize("programs", ["ray"], indirect=True)
def test_an_actor_that_dies_as_a_restart_begins_is_a_failure_as_any_other(trainings: Programs) -> None:
    """An actor that dies while a restart begins counts as a failure like any other, and the next restart trains."""
    trainings.run("""
        import psutil

        def actors():
            found = psutil.process_iter(["cmdline"])
            return {each for each in found if "WorkerActor" in " ".join(each.info["cmdline"] or ())}

        def kill_in_restart():
            wait_for(lambda: is_marked("failed"))
            seen = actors()
            while not (new := actors() - seen):
                time.sleep(0.001)
            new.pop().kill()
            mark("killed")

        def function():
            if not is_marked("failed"):
                report(0, {"step": "0"} if rank() == 0 else None)
                if rank() == 0:
                    mark("failed")  # its checkpoint is stored, and the other rank is beyond this report
                wait_for(lambda: is_marked("failed"))
                raise RuntimeError("the first attempt")
            return first_step()

        threading.Thread(target=kill_in_restart, daemon=True).start()
        assert fit(function, max_failures=50).return_value == 1
        assert is_marked("killed")
    """)


def test_an_exception_is_raised_with_its_traceback_and_the_output_is_kept(trainings: Programs, home: Home) -> None:
    """The worker's exception is the cause of the error raised, and the trial has its reason and the workers' output."""
    trainings.run("""
        class Unlucky(Exception):
            pass

        def function():
            print("rank", rank(), "was here")
            if rank() == 1:
                raise Unlucky("no luck")
            time.sleep(60)

        began_at = time.monotonic()
        try:
            fit(function)
        except TrainingFailedError as error:
            assert isinstance(error.__cause__, Unlucky)
            assert "no luck" in str(error) and "in function" in str(error)
        else:
            raise AssertionError
    """)

    assert "[rank=1] rank 1 was here" in home.trial(1).log_path(1).read_text()
    exit_record = home.trial(1).read_exit(1)
    assert exit_record is not None
    assert exit_record.reason.endswith("no luck")
    assert home.trial(1).running_attempt() is None


def test_what_cannot_be_pickled_is_named_and_leaves_no_trial(trainings: Programs, home: Home) -> None:
    """An object that cannot be pickled is named with the error of `pickle`, and no trial is left behind."""
    trainings.run("""
        lock = threading.Lock()

        def function():
            with lock:
                pass

        try:
            fit(function)
        except NotPicklableError as error:
            words = "what the trainer was given cannot be pickled ('function'): TypeError: cannot pickle '_thread.lock'"
            assert words in str(error), error
        else:
            raise AssertionError
    """)

    assert home.trial_ids() == []


def test_a_worker_that_cannot_import_says_so(trainings: Programs) -> None:
    """If a worker cannot import a module, the error of fit() names the module."""
    trainings.run("""
        sys.path.insert(0, DIRECTORY)
        Path(DIRECTORY, "here_only.py").write_text("import os\\ndef function(): pass\\n")
        import here_only
        Path(DIRECTORY, "here_only.py").unlink()

        try:
            fit(here_only.function)
        except TrainingFailedError as error:
            assert "No module named 'here_only'" in str(error), error
        else:
            raise AssertionError
    """)


@promise("fit-has-own-workers")
def test_each_fit_has_workers_of_its_own(trainings: Programs) -> None:
    """Each fit() has new workers, without state of earlier ones, and with the present modules and environment."""
    trainings.run(
        """
        sys.path.insert(0, DIRECTORY)
        Path(DIRECTORY, "helper.py").write_text("value = 1")

        def function():
            import atexit, helper
            earlier, helper.earlier = getattr(helper, "earlier", None), True
            atexit.register(mark, f"left by {helper.value}")
            return os.getpid(), helper.value, earlier, os.environ.get("FLAG"), os.getcwd()

        first = fit(function).return_value
        assert first[1:4] == (1, None, None) and is_marked("left by 1"), first
        Path(DIRECTORY, "helper.py").write_text("value = 22")
        os.environ["FLAG"] = "1"
        os.mkdir("other")
        os.chdir("other")
        second = fit(function).return_value
        assert second[1:3] == (22, None) and is_marked("left by 22"), second
        if SCALING == {"engine": "local"}:
            assert first[4] == DIRECTORY and second[3:] == ("1", os.getcwd()), (first, second)
        wait_for(lambda: not any(os.path.exists(f"/proc/{each[0]}") for each in (first, second)))
    """,
        timeout_s=120,
    )


@pytest.mark.parametrize("programs", ["ray"], indirect=True)
def test_a_fit_gives_its_places_back_when_it_ends(trainings: Programs) -> None:
    """A fit() returns its resources when it ends, to other tasks of the program and to the next trainer."""
    trainings.run("""
        import ray

        def function():
            return "trained"

        everything = {"resources_per_worker": {"CPU": 4}}
        assert fit(function, scaling_options=everything).return_value == "trained"

        @ray.remote(num_cpus=8)
        def task():
            return "done"

        assert ray.get(task.remote(), timeout=60) == "done"
        assert fit(function, num_workers=1, scaling_options={"resources_per_worker": {"CPU": 8}}).return_value
    """)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp2"])
def test_workers_train_one_model_together(trainings: Programs, strategy: str) -> None:
    """Several workers train a model as one worker does with the whole batch, with DDP, FSDP and FSDP2."""
    trainings.run(
        f"""
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        def function(config):
            torch.manual_seed(0)
            layers = torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
            model = train.torch.prepare_model(torch.nn.Sequential(*layers), parallel_strategy={strategy!r})
            x = torch.arange(32.0).reshape(16, 2) / 32
            loader = train.torch.prepare_data_loader(
                DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=config["batch_size"])
            )
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            losses = []
            for epoch in range(3):
                for features, target in loader:
                    loss = (model(features) - target).square().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
            of_ranks = train.get_context().core_context.distributed.allgather(losses)
            return [sum(each) / len(each) for each in zip(*of_ranks)]

        one = fit(function, {{"batch_size": 8}}, num_workers=1).return_value
        two = fit(function, {{"batch_size": 4}}, num_workers=2).return_value
        assert len(two) == 6
        assert all(abs(a - b) < 1e-5 for a, b in zip(one, two)), (one, two)
    """,
        timeout_s=120,
    )


def test_ranks_that_report_unevenly_are_told(trainings: Programs) -> None:
    """Ranks that call report() unequally often get an error, rather than waiting for each other."""
    trainings.run("""
        def function():
            if rank() == 0:
                train.report({"loss": 1.0})
            report(1, {"step": "1"})

        try:
            fit(function)
        except TrainingFailedError as error:
            assert "report() equally often" in str(error), error
        else:
            raise AssertionError
    """)


def test_a_training_is_paused_and_resumed_by_its_trial(trainings: Programs, home: Home, warm_cli: WarmCli) -> None:
    """A function that knows nothing of stops ends after its next checkpoint; the command starts it again."""
    program = trainings.start(
        COUNT
        + """
def slow(config):
    for step in range(first_step(), config["num_steps"]):
        report(step, {"step": str(step)})
        if step == 3:
            print("at 3", flush=True)
        while not is_marked("go"):
            report(step, {"step": str(step)})
            time.sleep(0.05)

result = fit(slow, {"num_steps": 6})
print("stopped" if result.is_stopped else "done", flush=True)
"""
    )
    wait_for(lambda: home.runs.exists() and bool(home.trial_ids()) and home.trial(1).journal_path(1).exists())
    wait_for(lambda: '"checkpoint"' in home.trial(1).journal_path(1).read_text())

    home.trial(1).request_stop(1, "a test")

    code, output, errors = program.wait()
    assert code == 0, errors
    assert output.splitlines()[-1] == "stopped"
    assert '"outcome":"paused"' in home.trial(1).journal_path(1).read_text()
    (trainings.directory / "go").touch()
    resumed = warm_cli.run(trainings.directory, "trial", "resume", "1", **trainings.variables)
    assert resumed.status == 0, resumed
    assert "done" in resumed.output
    assert '"outcome":"completed"' in home.trial(1).journal_path(2).read_text()


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, signal.SIGKILL],
    ids=lambda number: number.name,
)
def test_a_program_that_is_stopped_leaves_no_worker_and_its_end_recorded(
    trainings: Programs, home: Home, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM pauses the training, Ctrl-C cancels it, and after a `kill -9` it can be resumed.

    In a job, the status after a pause asks for another start.
    """
    monkeypatch.setenv("CORE_SDK_JOB_ID", "a")
    program = trainings.start("""
        def function():
            print("worker", os.getpid(), flush=True)
            while True:
                report(1, {"step": "1"})
                time.sleep(0.02)

        fit(function)
    """)
    wait_for(lambda: home.runs.exists() and bool(home.trial_ids()) and home.trial(1).journal_path(1).exists())
    wait_for(lambda: '"checkpoint"' in home.trial(1).journal_path(1).read_text())
    log = home.trial(1).log_path(1)
    wait_for(lambda: log.read_text().count("worker ") == 2)
    workers = [psutil.Process(int(line.split()[-1])) for line in log.read_text().splitlines() if "worker " in line]

    program.process.send_signal(number)

    code, _, _ = program.wait()
    wait_for(lambda: not any(worker.is_running() for worker in workers))
    wait_for(lambda: home.trial(1).running_attempt() is None)
    expected = {signal.SIGTERM: (75, "paused"), signal.SIGINT: (-2, "canceled"), signal.SIGKILL: (-9, None)}[number]
    journal = home.trial(1).journal_path(1).read_text()
    assert code == expected[0]
    if expected[1] is not None:
        assert f'"outcome":"{expected[1]}"' in journal


def test_a_program_whose_function_never_reports_dies_of_sigterm(trainings: Programs, home: Home) -> None:
    """SIGTERM ends a program whose function never reports, and the end is recorded."""
    program = trainings.start("""
        def function():
            print("begun", flush=True)
            time.sleep(60)

        fit(function)
    """)
    program.read_until("[rank=0] begun")

    program.process.send_signal(signal.SIGTERM)

    code, _, _ = program.wait()
    exit_record = home.trial(1).read_exit(1)
    # Ray has a handler of its own, which exits with the signal's number.
    assert code == (-signal.SIGTERM if trainings.engine == "local" else signal.SIGTERM)
    assert exit_record is not None
    assert exit_record.code == -signal.SIGTERM


def test_a_training_is_killed_by_its_trial(trainings: Programs, home: Home, warm_cli: WarmCli) -> None:
    """`trial kill` ends a training with its program and all of its processes."""
    program = trainings.start("""
        def function():
            print("begun", flush=True)
            time.sleep(60)

        fit(function)
    """)
    program.read_until("[rank=0] begun")
    processes = psutil.Process(program.process.pid).children(recursive=True)

    killed = warm_cli.run(trainings.directory, "trial", "kill", "1")

    assert killed.status == 0, killed
    program.wait()
    wait_for(lambda: not any(each.is_running() for each in processes))
    listed = warm_cli.run(trainings.directory, "trial", "list")
    assert "CANCELED" in listed.output


def test_a_program_piped_in_trains_and_is_not_resumed_by_command(trainings: Programs, home: Home) -> None:
    """A program piped into Python trains with its own functions and classes, and records no command to resume by."""
    trainings.run(
        """
        factor = 3

        class Model:
            def value(self):
                return factor * 2

        def function():
            return Model().value()

        assert fit(function).return_value == 6
        """,
        is_piped=True,
    )

    assert home.trial(1).read_command() is None


def test_under_core_sdk_run_the_training_is_that_trial(trainings: Programs, home: Home, warm_cli: WarmCli) -> None:
    """Under `core-sdk run`, the first fit() trains the trial of the run, and a second fit() has a new trial."""
    program = trainings.write("""
        def function():
            if train.get_checkpoint() is None:
                report(0, {"step": "0"})
                raise ValueError("once")
            report(1)

        assert fit(function, max_failures=1).trial_id == 1
        assert fit(function, max_failures=1).trial_id == 2
    """)

    python = str(trainings.python)
    finished = warm_cli.run(trainings.directory, "run", "--", python, str(program), **trainings.variables)

    assert finished.status == 0, finished
    assert home.trial_ids() == [1, 2]
    assert home.trial(1).attempts() == [1, 2]
    exit_record = home.trial(1).read_exit(1)
    assert exit_record is not None
    assert "once" in exit_record.reason


def test_eight_workers_start_report_and_end(trainings: Programs) -> None:
    """Eight workers start, report and end, even on a machine with two cores."""
    trainings.run("""
        def function():
            report(1, {"step": "1"} if rank() == 0 else None)
            return train.get_context().get_world_size()

        assert fit(function, num_workers=8).return_value == 8
    """)


def test_a_training_takes_datasets(trainings: Programs) -> None:
    """Each rank has its part, equally many batches, and any order can be resumed."""
    trainings.run("""
        def function():
            rows = [row for batch in train.get_dataset_shard("train").iter_batches(batch_size=2) for row in batch]
            whole = list(train.get_dataset_shard("valid"))
            return train.get_context().core_context.distributed.gather((rows, whole))

        shards = fit(
            function,
            datasets={"train": list(range(10)), "valid": range(3)},
            dataset_config=train.DataConfig(datasets_to_split=["train"]),
        ).return_value
        assert sorted(shards[0][0] + shards[1][0]) == list(range(10)), shards
        assert [whole for _, whole in shards] == [[0, 1, 2]] * 2
    """)


def test_an_iterable_dataset_is_divided_by_its_shards_or_refused(trainings: Programs) -> None:
    """An iterable dataset is divided by its shards or refused, so that workers never see the same samples."""
    trainings.run("""
        from torch.utils.data import DataLoader, IterableDataset
        from core_sdk.loop import ShardedDataset

        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(4))

        def function():
            try:
                train.torch.prepare_data_loader(DataLoader(Stream()))
            except ValueError as error:
                assert "cannot be divided among 2 workers: give its shards to" in str(error)
            data = ShardedDataset([range(5), range(5, 6), range(6, 12)], iter, shuffle=True)
            loader = train.torch.prepare_data_loader(DataLoader(data, 2, num_workers=1))
            samples = [each for batch in loader for each in batch.tolist()]
            return train.get_context().core_context.distributed.gather(samples)

        left, right = fit(function).return_value
        assert len(left) == len(right) == 6
        assert sorted(left + right) == list(range(12))
    """)


def test_a_search_hears_of_reports_with_its_metric(trainings: Programs, home: Home, warm_cli: WarmCli) -> None:
    """In a search, reports with its metric are validations, and the function gets the chosen hyperparameters."""
    program = trainings.write("""
        def function(config):
            train.report({"loss": 9.0})
            train.report({"score": config["x"]})

        if __name__ == "__main__":
            fit(function, {"x": 0.0}, num_workers=1)
    """)
    (trainings.directory / "search.yaml").write_text(f"""
name: searched
entrypoint: {trainings.python} {program.name}
hyperparameters:
  x: {{type: categorical, vals: [1.0, 2.0]}}
searcher: {{name: grid, metric: score, smaller_is_better: false, max_length: {{batches: 1}}}}
resources: {{slots_per_trial: 1}}
""")

    finished = warm_cli.run(
        trainings.directory, "experiment", "create", "--local", "search.yaml", ".", **trainings.variables
    )

    assert finished.status == 0, finished
    journals = [home.trial(trial_id).journal_path(1).read_text() for trial_id in home.trial_ids()]
    scores = sorted(float(journal.partition('"score":')[2].partition("}")[0]) for journal in journals)
    assert scores == [1.0, 2.0]
    assert all('"group":"validation"' in journal and '"group":"training"' in journal for journal in journals)


@pytest.mark.parametrize("programs", ["local"], indirect=True)
def test_a_search_stops_functions_that_store_nothing(trainings: Programs, home: Home, warm_cli: WarmCli) -> None:
    """A search stops functions without checkpoints at their next report, long before their end."""
    program = trainings.write("""
        def function(config):
            for epoch in range(1, 28):
                train.report({"score": config["x"], "epoch": epoch})
                time.sleep(0.2)

        if __name__ == "__main__":
            fit(function, {"x": 0.0}, num_workers=0)
    """)
    (trainings.directory / "search.yaml").write_text(f"""
name: searched
entrypoint: {trainings.python} {program.name}
hyperparameters:
  x: {{type: double, minval: 0, maxval: 1}}
searcher:
  name: async_halving
  metric: score
  smaller_is_better: false
  num_rungs: 3
  max_trials: 4
  divisor: 3
  time_metric: epoch
  max_time: 27
  max_concurrent_trials: 2
resources: {{slots_per_trial: 0}}
reproducibility: {{experiment_seed: 3}}
""")

    finished = warm_cli.run(
        trainings.directory, "experiment", "create", "--local", "search.yaml", ".", **trainings.variables
    )

    assert finished.status == 0, finished
    stopped = [trial for trial in map(client.get_trial, home.trial_ids()) if trial.reason == STOPPED_BY_SEARCHER]
    assert stopped
    assert {trial.state.name for trial in stopped} == {"COMPLETED"}
    assert max(trial.steps_completed for trial in stopped) < 27
    assert client.get_experiment(1).state.name == "COMPLETED"


@pytest.mark.parametrize("programs", ["local"], indirect=True)
def test_a_program_of_a_job_that_has_stored_nothing_stops_with_status_75(trainings: Programs) -> None:
    """A stopped job without a checkpoint exits with status 75, and says that the next start begins from nothing."""
    program = trainings.start("""
        def function():
            for step in range(1000):
                report(step)
                mark(f"training{rank()}")
                time.sleep(0.05)

        assert fit(function, run_config=RunConfig(job_id="job")).is_stopped
    """)
    # A rank hears of a stop from its first report on.
    wait_for(lambda: len(list(trainings.directory.glob("training[01]"))) == 2)

    program.process.send_signal(signal.SIGTERM)
    code, _, errors = program.wait()

    assert code == 75, errors
    assert "in a report without a checkpoint: a resume begins from nothing" in errors
    assert client.get_trial(1).state.name == "PAUSED"
