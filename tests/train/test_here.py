"""Trainings with `num_workers=0`, in the test's own process: they mean what trainings on workers mean."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import wait_for
from questions import answers

from core_sdk import client, core, train
from core_sdk._ground.environment import get_cluster_info
from core_sdk._home import Home
from core_sdk.errors import (
    InvalidHP,
    InvalidMetricError,
    InvalidNameError,
    MissingDependencyError,
    TrainingFailedError,
    TrialNotFoundError,
    WorkerError,
)
from core_sdk.train import (
    Checkpoint,
    CheckpointConfig,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    TorchTrainer,
    UserCallback,
)


def fit(function: Any, config: Any = None, run: RunConfig | None = None, **options: Any) -> Result:
    scaling = ScalingConfig(num_workers=0)
    trainer = TorchTrainer(function, train_loop_config=config, scaling_config=scaling, run_config=run, **options)
    return trainer.fit()


def stored(directory: Path, text: str) -> Checkpoint:
    directory.mkdir(exist_ok=True)
    (directory / "state").write_text(text)
    return Checkpoint.from_directory(directory)


def test_a_fit_is_a_trial_with_all_reports_and_the_last_checkpoint(tmp_path: Path, home: Home) -> None:
    """Checkpoints are kept, although the directory that was reported is gone."""

    def function(config: dict[str, Any]) -> str:
        for step in range(3):
            train.report({"loss": config["lr"] * step})
        checkpoint = stored(tmp_path / "here", "good")
        train.report({"loss": 9.0}, checkpoint=checkpoint, checkpoint_dir_name="last")
        (tmp_path / "here" / "state").unlink()
        return train.get_context().get_experiment_name()

    result = fit(function, {"lr": 0.5, "loss": torch.nn.MSELoss()}, RunConfig(name="line"))

    assert result.return_value == "line"
    assert result.metrics == {"loss": 9.0}
    assert list(result.metrics_dataframe["loss"]) == [0.0, 0.5, 1.0, 9.0]
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        assert Path(directory, "state").read_text() == "good"
    assert home.trial(result.trial_id).read_record().hparams == {"lr": 0.5}
    assert get_cluster_info() is None
    assert result.path == str(home.trial(result.trial_id).path)
    later = Result.from_path(result.path)
    assert later.metrics == {"loss": 9.0}
    client.get_trial(result.trial_id).delete()
    with pytest.raises(TrialNotFoundError):
        later.checkpoint  # noqa: B018 - it is read now


def test_reports_have_texts_lists_dicts_and_none(tmp_path: Path, home: Home) -> None:
    """Reports hold these and numbers, with or without a checkpoint, also in callbacks; a tensor can be a number."""
    told = []

    class Callback(UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            told.extend(metrics)

    values = {"best": None, "classes": ["cat", "dog"], "phase": "warm-up", "recalls": {"cat": 0.5, "dog": math.inf}}

    def function() -> None:
        train.report({"loss": torch.ones(1), **values})
        train.report({"phase": "end"}, checkpoint=stored(tmp_path / "here", "good"))

    result = fit(function, run=RunConfig(callbacks=[Callback()]))

    assert list(result.metrics_dataframe["phase"]) == ["warm-up", "end"]
    assert result.metrics == {"phase": "end"}
    assert result.best_checkpoints[0][1] == {"phase": "end"}
    assert told == [{"loss": 1.0, **values}, {"phase": "end"}]
    assert [each.metrics for each in client.get_trial(1).iter_metrics("values")] == [values, {"phase": "end"}]


def test_options_of_ray_that_have_no_meaning_here_are_named(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """Each option of Ray without a meaning here is named in one warning, and the training runs."""
    scaling = ScalingConfig(num_workers=0, trainer_resources={"CPU": 0})
    run = RunConfig(sync_config=object(), verbose=0, stop={"training_iteration": 3})

    TorchTrainer(lambda: train.report({"loss": 1.0}), scaling_config=scaling, run_config=run).fit()

    assert [message.partition("=…")[0] for message in caplog.messages] == [
        "ScalingConfig(trainer_resources",
        "RunConfig(sync_config",
        "RunConfig(verbose",
        "RunConfig(stop",
    ]


def test_a_function_knows_its_trial(home: Home) -> None:
    """A function learns its trial's name, id and directory from the context, and through Ray's older `session`."""
    from core_sdk.train import session

    def function() -> tuple[str, ...]:
        session.report({"loss": 1.0})
        context = train.get_context()
        assert session.get_trial_name() == context.get_trial_name()
        assert (session.get_world_rank(), session.get_world_size()) == (0, 1)
        return context.get_trial_name(), context.get_trial_id(), context.get_trial_dir()

    result = fit(function, run=RunConfig(trial_name="first"))

    assert result.return_value == ("first", "1", result.path)
    assert result.metrics == {"loss": 1.0}


def test_a_trainer_is_restored_from_its_path(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored trainer's fit() is the trial's next attempt; a missing trial, home or function is refused."""

    def function() -> bool:
        is_resumed = train.get_checkpoint() is not None
        train.report({"loss": 1.0}, checkpoint=stored(tmp_path / "here", "good"))
        return is_resumed

    path = fit(function).path
    fit(function)

    trainer = TorchTrainer.restore(path, function, scaling_config=ScalingConfig(num_workers=0))
    result = trainer.fit()

    assert (result.trial_id, result.return_value, home.trial(1).attempts()) == (1, True, [1, 2])
    assert (TorchTrainer.can_restore(path), TorchTrainer.can_restore(tmp_path / "none")) == (True, False)
    with pytest.raises(TrialNotFoundError):
        TorchTrainer.restore(tmp_path / "none", function)
    with pytest.raises(TypeError, match="pass train_loop_per_worker="):
        TorchTrainer.restore(path)
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "other"))
    with pytest.raises(ValueError, match="is not of the home"):
        TorchTrainer.restore(path, function)


def test_a_failed_function_is_called_again_from_its_newest_checkpoint(tmp_path: Path, home: Home) -> None:
    """A failed function restarts from its newest checkpoint in a new attempt; reports after it are discarded."""
    seen = []

    def function() -> None:
        checkpoint = train.get_checkpoint()
        seen.append(None if checkpoint is None else Path(checkpoint.to_directory(), "state").read_text())
        train.report({"loss": 1.0}, checkpoint=stored(tmp_path / "one", f"attempt {len(seen)}"))
        train.report({"loss": 10.0 * len(seen)})
        if len(seen) == 1:
            raise ValueError("no luck")

    result = fit(function, run=RunConfig(failure_config=FailureConfig(max_failures=1)))

    assert seen == [None, "attempt 1"]
    assert [metrics["loss"] for metrics in result.metrics_dataframe.to_dict("records")] == [1.0, 1.0, 20.0]
    assert home.trial(result.trial_id).attempts() == [1, 2]


def test_a_failure_that_is_not_allowed_is_raised_with_its_cause(home: Home) -> None:
    """The message names the trial, and its last line is the function's own error."""

    def function() -> None:
        raise ZeroDivisionError("by nought")

    with pytest.raises(TrainingFailedError, match=r"trial 1 has failed in attempt 1: (.|\n)*by nought$") as raised:
        fit(function)

    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert {rank: type(error) for rank, error in raised.value.worker_failures.items()} == {0: ZeroDivisionError}
    assert not home.trial(1).running_attempts()


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"loss": {1, 2}}, "'loss'.*is a set"),
        ({"loss": torch.zeros(2)}, "'loss'.*shape"),
        ({"loss": {"a": object()}}, "'loss'.*is a dict"),
    ],
)
def test_metrics_that_cannot_be_kept_are_refused_by_name(metrics: dict[str, Any], message: str) -> None:
    """A metric that cannot be stored is refused with an error that has its name and its type."""

    def function() -> None:
        with pytest.raises(InvalidMetricError, match=message):
            train.report(metrics)
        train.report({"loss": torch.tensor(2.5), "worst": math.inf})

    assert fit(function).metrics == {"loss": 2.5, "worst": math.inf}


def test_a_directory_that_is_gone_is_refused(tmp_path: Path) -> None:
    """A checkpoint directory that is missing or is a file is refused with an error that has its path."""

    def function() -> None:
        with pytest.raises(ValueError, match="gone does not exist: report"):
            train.report({"loss": 1.0}, checkpoint=Checkpoint(tmp_path / "gone"))
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="is no directory"):
            train.report({"loss": 1.0}, checkpoint=Checkpoint(tmp_path / "file"))

    fit(function)


def test_only_the_best_checkpoints_are_kept(tmp_path: Path) -> None:
    """The best checkpoints and the newest are kept, and the function can list all that are kept at any time."""

    def function() -> list[float]:
        for loss in (3.0, 1.0, 2.0, 4.0):
            train.report({"loss": loss}, checkpoint=stored(tmp_path / "here", str(loss)))
        return [each.metrics["loss"] for each in train.get_all_reported_checkpoints()]

    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    result = fit(function, run=RunConfig(checkpoint_config=config, storage_path=str(tmp_path / "storage")))

    assert result.return_value == [1.0, 2.0, 4.0]
    assert [metrics["loss"] for _, metrics in result.best_checkpoints] == [2.0, 1.0]
    assert result.checkpoint is not None
    assert (Path(result.checkpoint.path) / "state").read_text() == "4.0"
    best = result.get_best_checkpoint("loss", "min")
    assert best is not None
    assert Path(best.path).parent == tmp_path / "storage"
    assert Path(best.to_directory(tmp_path / "copy"), "state").read_text() == "1.0"
    with pytest.raises(ValueError, match="'accuracy'; there are loss"):
        result.get_best_checkpoint("accuracy", "max")


def test_a_result_is_found_by_its_storage_and_name(tmp_path: Path) -> None:
    """Result.from_path() finds the newest result by storage path and name, and no result of another path or name."""

    def function() -> None:
        train.report({"loss": 1.0}, checkpoint=stored(tmp_path / "here", ""), checkpoint_dir_name="first")

    places = [(tmp_path / "a", "one"), (tmp_path / "a", "one"), (tmp_path / "b", "one"), (tmp_path / "a", "two")]
    results = [fit(function, run=RunConfig(name=name, storage_path=str(path))) for path, name in places]

    assert Result.from_path(str(tmp_path / "a" / "one")).trial_id == results[1].trial_id
    assert Result.from_path(tmp_path / "b" / "one").trial_id == results[2].trial_id
    for unknown in ("b/two", "three"):
        with pytest.raises(TrialNotFoundError):
            Result.from_path(tmp_path / unknown)
    checkpoint = client.get_trial(results[0].trial_id).list_checkpoints()[0]
    assert checkpoint.metadata["checkpoint_dir_name"] == "first"
    assert (tmp_path / "a" / checkpoint.uuid / "state").exists()


def test_without_checkpoints_none_is_the_best() -> None:
    """get_best_checkpoint() returns None for a training without checkpoints."""
    result = fit(lambda: train.report({"loss": 1.0}))

    assert result.get_best_checkpoint("loss", "min") is None


def test_a_prepared_loader_has_what_the_table_says() -> None:
    """A prepared loader is no class of torch, has its attributes, and each of its iterations is a new epoch."""

    def function() -> None:
        given = torch.utils.data.DataLoader(list(range(16)), batch_size=4, shuffle=True)  # type: ignore[arg-type,var-annotated]
        loader = train.torch.prepare_data_loader(given)
        assert not isinstance(loader, torch.utils.data.DataLoader)
        assert (loader.batch_size, len(loader.dataset)) == (4, 16)
        first, second = ([each.tolist() for each in loader] for _ in range(2))
        loader.sampler.set_epoch(0)
        assert [each.tolist() for each in loader] == first != second

    fit(function)


def test_a_version_of_a_model_is_kept(tmp_path: Path) -> None:
    """A checkpoint registered as a model version is never deleted, however bad its score is."""

    def function() -> None:
        train.report({"loss": 3.0}, checkpoint=stored(tmp_path / "here", "worst"))
        worst = client.get_trial(1).list_checkpoints()[0]
        client.create_model("digits").register_version(worst.uuid)
        for loss in (1.0, 2.0):
            train.report({"loss": loss}, checkpoint=stored(tmp_path / "here", str(loss)))

    config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    fit(function, run=RunConfig(checkpoint_config=config))

    assert len(client.get_trial(1).list_checkpoints()) == 3
    assert client.get_model("digits").list_versions()[0].checkpoint.training.trial_id == 1


def test_a_checkpoint_keeps_metadata_of_its_own(tmp_path: Path) -> None:
    """A checkpoint's metadata may change until the checkpoint is stored, and is stored with it."""

    def function() -> None:
        checkpoint = stored(tmp_path / "here", "")
        checkpoint.set_metadata({"epoch": 1})
        checkpoint.update_metadata({"best": True})
        train.report({"loss": 1.0}, checkpoint=checkpoint)

    checkpoint = fit(function).checkpoint

    assert checkpoint is not None
    assert checkpoint.get_metadata() == {"epoch": 1, "best": True}
    with pytest.raises(ValueError, match="does not change any more"):
        checkpoint.set_metadata({})


def test_a_checkpoint_may_be_stored_in_the_background(tmp_path: Path) -> None:
    """An asynchronous upload removes the checkpoint's directory at once, since it has been copied."""

    def function() -> bool:
        mode = train.CheckpointUploadMode.ASYNC
        train.report({"loss": 1.0}, checkpoint=stored(tmp_path / "here", "good"), checkpoint_upload_mode=mode)
        return (tmp_path / "here").exists()

    result = fit(function)

    assert result.return_value is False
    assert result.checkpoint is not None
    assert Path(result.checkpoint.to_directory(), "state").read_text() == "good"


def test_outside_of_a_training_function_the_functions_say_so() -> None:
    """Outside of a training function, each function raises a RuntimeError that names it."""
    for call in (
        lambda: train.report({"loss": 1.0}),
        train.get_checkpoint,
        train.get_context,
        train.get_dataset_shard,
        train.get_preemption_info,
        train.should_preempt,
        train.collective.barrier,
        train.torch.get_device,
    ):
        with pytest.raises(RuntimeError, match=r"\(\) works only in a function that a TorchTrainer executes"):
            call()


def test_a_worker_knows_its_place_and_has_the_core_api(home: Home) -> None:
    """Without others a worker has rank 0 of 1, and the context gives it the Core API."""

    def function() -> list[int]:
        context = train.get_context()
        assert isinstance(context.core_context, core.Context)
        context.core_context.train.set_status("fine")
        train.collective.barrier()
        assert train.collective.broadcast_from_rank_zero("all") == "all"
        assert train.get_preemption_info() is None
        assert not train.should_preempt()
        return [
            context.get_world_size(),
            context.get_world_rank(),
            context.get_local_rank(),
            context.get_local_world_size(),
            context.get_node_rank(),
        ]

    assert fit(function).return_value == [1, 0, 0, 1, 0]


def test_hyperparameters_that_cannot_be_trained_end_the_trial_without_an_error() -> None:
    """InvalidHP in the function ends the trial without an exception; the result's error has the reason."""

    def function() -> None:
        raise InvalidHP("too steep")

    result = fit(function)

    assert isinstance(result.error, InvalidHP)
    assert "too steep" in str(result.error)


def test_each_fit_draws_the_same_random_numbers_after_the_same_seed() -> None:
    """The global generators are seeded with the trial's seed, whatever was drawn before."""

    def function() -> tuple[bool, float]:
        seed = train.get_context().core_context.info.trial.trial_seed
        drawn = float(torch.rand(1))
        torch.manual_seed(seed)
        return drawn == float(torch.rand(1)), drawn

    first, second = fit(function).return_value, fit(function).return_value

    assert first[0]
    assert second[0]
    assert first[1] != second[1]


def test_two_fits_of_one_seed_draw_the_same(home: Home) -> None:
    """Two fits with one seed draw the same, also in a prepared loader; a resumed trial keeps its own seed."""

    def function() -> tuple[float, list[int]]:
        loader = train.torch.prepare_data_loader(torch.utils.data.DataLoader(range(16), shuffle=True))  # type: ignore[arg-type]
        return float(torch.rand(1)), [int(each) for each in loader]

    first, second, other = (fit(function, run=RunConfig(seed=seed)).return_value for seed in (7, 7, 8))
    resumed = [fit(function, run=RunConfig(seed=seed, job_id="digits")) for seed in (7, 8)]

    assert first == second == resumed[0].return_value == resumed[1].return_value
    assert first[0] != other[0]
    assert first[1] != other[1]
    assert home.trial(resumed[1].trial_id).read_record().seed == 7
    with pytest.raises(ValueError, match="seed is -1; it must be from 0"):
        RunConfig(seed=-1)


def test_a_fit_names_its_trial() -> None:
    """RunConfig gives a trial its name, labels and notes; impossible ones are refused before anything starts."""
    run = RunConfig(name="digits", trial_name="wide", labels=["new"], notes="Twice as *wide*.")

    result = fit(lambda: None, run=run)

    trial = client.get_trial(result.trial_id)
    assert (trial.name, trial.labels, trial.notes) == ("wide", {"new"}, "Twice as *wide*.")
    with pytest.raises(InvalidNameError, match="the trial's name"):
        RunConfig(trial_name="")
    with pytest.raises(TypeError, match="labels is 'new', a str"):
        RunConfig(labels="new")


def test_a_job_goes_on_with_its_trial(tmp_path: Path) -> None:
    """Each fit() with the same job_id goes on with the same trial from its last checkpoint."""

    def function() -> int:
        checkpoint = train.get_checkpoint()
        done = 0 if checkpoint is None else int(Path(checkpoint.to_directory(), "state").read_text())
        train.report({"done": done + 1}, checkpoint=stored(tmp_path / "here", str(done + 1)))
        return done

    run = RunConfig(job_id="digits")
    results = [fit(function, run=run) for _ in range(3)]

    assert [result.return_value for result in results] == [0, 1, 2]
    assert len({result.trial_id for result in results}) == 1
    assert list(results[-1].metrics_dataframe["done"]) == [1, 2, 3]


def test_a_resumed_function_may_ask_everything_before_its_first_report(tmp_path: Path) -> None:
    """Before its first report, a resumed function gets the same answers from the API as without the resume."""
    asked: list[dict[str, object]] = []

    def function() -> None:
        if train.get_checkpoint() is None:
            train.report({"loss": 1.0}, checkpoint=stored(tmp_path / "here", "state"))
        asked.append({**answers(train), **answers(train.get_context()), "checkpoint": str(train.get_checkpoint())})

    for _ in range(2):
        fit(function, run=RunConfig(job_id="asking"), datasets={"train": [1, 2, 3]})

    assert asked[0] == asked[1]
    assert not [answer for answer in asked[0].values() if "Error:" in str(answer)]


def test_a_resumed_function_knows_when_a_checkpoint_was_due(tmp_path: Path, home: Home) -> None:
    """A resumed training keeps its interval between checkpoints, and stops where the next one is due."""

    def function() -> None:
        attempt = train.get_context().core_context.info.trial.attempt
        for step in range(1, 7) if attempt == 1 else range(7, 50):
            if step == 7:
                home.trial(1).request_stop(attempt, "a person")
                wait_for(lambda: train.get_context().core_context.preempt.is_stop_agreed)
            has_checkpoint = step % 2 == 0 and step < 7
            train.report({"step": step}, checkpoint=stored(tmp_path / "here", "state") if has_checkpoint else None)

    first, second = (fit(function, run=RunConfig(job_id="resumed")) for _ in range(2))

    assert not first.is_stopped
    assert second.is_stopped
    assert list(second.metrics_dataframe["step"]) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_this_machine_will_never_have_is_refused(home: Home) -> None:
    """Resources that this machine never has are refused at once, and no trial is left behind."""
    scaling = ScalingConfig(num_workers=2, engine="local", resources_per_worker={"CPU": 1, "tpu": 1})

    with pytest.raises(WorkerError, match="ask for 1 tpu"):
        TorchTrainer(print, scaling_config=scaling).fit()

    assert home.trial_ids() == []


def test_without_ray_its_engine_is_refused(home: Home) -> None:
    """Without Ray, engine="ray" is refused with the command that installs it, and no trial is left behind."""
    with pytest.raises(MissingDependencyError, match=r'pip install "ray'):
        TorchTrainer(print, scaling_config=ScalingConfig(num_workers=1, engine="ray")).fit()

    assert home.trial_ids() == []


def test_a_function_that_is_none_is_refused() -> None:
    """A trainer whose function is not callable or whose configuration is no dict is refused when it is made."""
    with pytest.raises(TypeError, match="train_loop_per_worker is 3"):
        TorchTrainer(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="train_loop_config must be a dict, not list"):
        TorchTrainer(print, train_loop_config=[1])  # type: ignore[arg-type]
