"""What becomes of a training whose workers die."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import wait_for
from sgd.creators import CREATORS, NUM_SAMPLES
from torch import nn

from core_sdk import client, core
from core_sdk._home import Home
from core_sdk.errors import CheckpointNotFoundError, WorkerDiedError
from core_sdk.sgd import PyTorchTrainer, Runner

BATCH_SIZE = 13
NUM_BATCHES = 4


def trained(config: dict[str, Any], model: Any, batches: Any, criterion: Any, optimizer: Any) -> dict[str, float]:
    """Worker 1 dies before the batches whose files lie in `config["deaths"]`, each once."""
    total = 0.0
    for index, (features, target) in enumerate(batches):
        death = Path(config["deaths"], str(index))
        if torch.distributed.get_rank() == 1 and death.exists():
            death.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        loss = criterion(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * batches.last_size
    return {"loss": total / batches.num_samples}


def validated(config: dict[str, Any], model: Any, batches: Any, criterion: Any) -> dict[str, float]:
    if torch.distributed.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"loss": 0.0}


@pytest.fixture
def deaths(tmp_path: Path) -> Path:
    """The directory of files by which worker 1 dies."""
    directory = tmp_path / "deaths"
    directory.mkdir()
    return directory


def model_creator(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))


def hold_saves(runner: Runner) -> None:
    """Lets each worker write one state, and none after it before `config["deaths"]` has a file "may save"."""
    write, num_begun = Runner.held_state, itertools.count()

    def held(runner: Runner, random_states: Any) -> bytes:
        if next(num_begun) > 0:
            Path(runner.config["deaths"], "saving").touch()
            wait_for(Path(runner.config["deaths"], "may save").exists)
        return write(runner, random_states)

    setattr(Runner, "held_state", held)  # noqa: B010 - mypy lets nobody assign to a method


@contextlib.contextmanager
def trainer(deaths: Path, **options: Any) -> Iterator[PyTorchTrainer]:
    """Each draws the same random numbers."""
    with core.init() as context:
        context.info.trial.trial_seed = 1
        with PyTorchTrainer(
            **{**CREATORS, "model_creator": model_creator},
            train_function=trained,
            validation_function=validated,
            config={"deaths": str(deaths)},
            num_replicas=2,
            batch_size=BATCH_SIZE,
            context=context,
            **options,
        ) as creator_trainer:
            yield creator_trainer


def losses(passes: list[dict[str, Any]]) -> list[float]:
    return [each["loss"] for each in passes]


@pytest.mark.timeout(600)
def test_a_death_at_any_batch_changes_no_number(deaths: Path) -> None:
    """The pass begins again from the state before it, with the same random numbers, and is counted once."""
    with trainer(deaths) as undisturbed:
        expected = [undisturbed.train() for _ in range(NUM_BATCHES + 1)]
        model = undisturbed.get_model()

    with trainer(deaths) as disturbed:
        passes = [disturbed.train(max_retries=1)]
        for index in range(NUM_BATCHES):
            (deaths / str(index)).touch()
            passes.append(disturbed.train(max_retries=1))
            assert not any(deaths.iterdir())
        again = disturbed.get_model()
        trial = client.get_trial(disturbed.context.info.trial.trial_id)

    assert losses(passes) == losses(expected)
    assert [each["batch_processed"] for each in passes] == [NUM_SAMPLES] * (NUM_BATCHES + 1)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    reported = [(each.steps_completed, each.metrics["loss"]) for each in trial.iter_metrics("training")]
    assert reported == [(NUM_BATCHES * number, loss) for number, loss in enumerate(losses(expected), 1)]


def test_a_death_while_a_state_is_stored_repeats_its_pass_too(deaths: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If a worker dies before a pass's state is stored, that pass is repeated too, with the same numbers."""
    with trainer(deaths) as undisturbed:
        expected = [undisturbed.train() for _ in range(2)]

    with trainer(deaths, initialization_hook=hold_saves) as disturbed:
        trial = client.get_trial(disturbed.context.info.trial.trial_id)
        passes = [disturbed.train(max_retries=1)]
        wait_for((deaths / "saving").exists)
        at_the_save = [each.metadata["epoch"] for each in trial.list_checkpoints()]
        (deaths / "0").touch()
        passes.append(disturbed.train(max_retries=1))
        after_the_death = [each.metadata["epoch"] for each in trial.list_checkpoints()]

    assert at_the_save == [0]
    assert 0 in after_the_death
    assert [each.metadata["epoch"] for each in trial.list_checkpoints()] == [2]
    assert "pass 1 is repeated, whose state was not stored" in caplog.messages
    assert losses(passes) == losses(expected)
    reported = [(each.steps_completed, each.metrics["loss"]) for each in trial.iter_metrics("training")]
    assert reported == [(NUM_BATCHES * number, loss) for number, loss in enumerate(losses(expected), 1)]


def test_a_state_is_stored_while_the_program_goes_on(deaths: Path) -> None:
    """A checkpoint that was asked for stays, and calls that need its copy of the state wait for it."""
    with trainer(deaths, initialization_hook=hold_saves) as one:
        trial = client.get_trial(one.context.info.trial.trial_id)
        first = one.save()
        one.train()
        second = one.save(wait=False)
        one.train()
        stored = [each.uuid for each in trial.list_checkpoints()]
        (deaths / "may save").touch()
        third = one.save()
        one.train(max_retries=1)

    assert stored == [first]
    epochs = {each.uuid: each.metadata["epoch"] for each in trial.list_checkpoints()}
    assert [epochs.pop(each) for each in (first, second, third)] == [0, 1, 2]
    assert list(epochs.values()) == [3]


def test_a_kept_state_that_is_gone_is_named(deaths: Path, home: Home) -> None:
    """If the last kept state is gone, a retry says so; a training with a newer state in memory goes on."""
    with trainer(deaths) as one:
        one.train(max_retries=1)
        one.context.checkpoint.wait()
        kept = client.get_trial(1).select_checkpoint(latest=True)
        shutil.rmtree(home.checkpoints / kept.uuid)
        one.apply_all_workers(lambda runner: None)
        one.train(max_retries=1)
        one.context.checkpoint.wait()
        for each in home.checkpoints.iterdir():
            shutil.rmtree(each)
        (deaths / "1").touch()
        with pytest.raises(CheckpointNotFoundError, match="there is no checkpoint"):
            one.train(max_retries=1)


def test_retries_end(deaths: Path) -> None:
    """After the last retry, the error says which worker died of what; the next call restarts all workers."""
    with trainer(deaths) as undisturbed:
        expected = [undisturbed.train() for _ in range(2)]

    with trainer(deaths) as disturbed:
        first = disturbed.train(max_retries=1)
        (deaths / "1").touch()
        (deaths / "2").touch()
        with pytest.raises(
            WorkerDiedError, match=r"train\(\): worker 1 .* was killed by SIGKILL.*The call was tried 2 times"
        ):
            disturbed.train(max_retries=1)
        second = disturbed.train(max_retries=1)

    assert losses([first, second]) == losses(expected)


def test_a_worker_that_dies_in_another_call_is_replaced(deaths: Path) -> None:
    """If a worker dies in validate(), that call fails, and the next pass starts from the state before it."""
    with trainer(deaths) as undisturbed:
        expected = [undisturbed.train() for _ in range(2)]

    with trainer(deaths) as disturbed:
        first = disturbed.train(max_retries=1)
        with pytest.raises(WorkerDiedError, match=r"validate\(\): worker 1 .*The next call starts all workers again"):
            disturbed.validate()
        second = disturbed.train(max_retries=1)

    assert losses([first, second]) == losses(expected)
