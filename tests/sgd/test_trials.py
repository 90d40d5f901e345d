"""A trainer is a trial: it is listed, paused and resumed as any other."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from interfaces.cli.commands import WarmCli
from processes import Script, wait_for
from questions import answers
from sgd.creators import CREATORS
from torch import nn

from core_sdk import client, core
from core_sdk.errors import WorkerFailedError
from core_sdk.sgd import PyTorchTrainer, Runner

LEADING = """
    import os, signal, sys
    import torch
    from torch import nn
    from core_sdk.sgd import PyTorchTrainer

    def model_creator(config):
        return nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def data_creator(config):
        print("making data")
        assert config["shape"] == (1, 2)
        x = torch.linspace(-1, 1, 48).unsqueeze(1)
        return torch.utils.data.TensorDataset(x, 2 * x + 1)

    def optimizer_creator(model, config):
        return torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)

    dies_after, job_id = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    config = {"lr": 0.1, "loss": nn.MSELoss, "shape": (1, 2)}
    with PyTorchTrainer(
        model_creator, data_creator, optimizer_creator, nn.MSELoss, config=config, num_replicas=2, job_id=job_id
    ) as trainer:
        while (trainer.epoch < 4 or dies_after < 0) and not trainer.context.preempt.should_preempt():
            trainer.train(max_retries=1)
            print("epoch", trainer.epoch, flush=True)
            if trainer.epoch == dies_after:
                os.kill(os.getpid(), signal.SIGKILL)
"""


SHUFFLED = {**CREATORS, "model_creator": lambda _: nn.Linear(4, 1)}


def test_a_program_that_was_killed_goes_on_with_its_trial(run_script: Callable[..., tuple[int, str, str]]) -> None:
    """A killed program continues its trial, with each pass reported exactly once and the workers' output kept."""
    killed, _, _ = run_script(LEADING, "2", "line")
    status, _, errors = run_script(LEADING, "0", "line")

    assert (killed, status) == (-signal.SIGKILL, 0), errors
    trial = client.get_trial(1)
    assert trial.state.name == "COMPLETED"
    assert trial.hparams == {"lr": 0.1, "shape": [1, 2]}
    reports = [(each.steps_completed, each.metrics["epoch"]) for each in trial.iter_metrics("training")]
    assert reports == [(3, 1), (6, 2), (9, 3), (12, 4)]
    assert len(trial.list_checkpoints()) <= 2, "a newer state takes the place of an older one"
    assert sum("making data" in entry for entry in trial.iter_logs()) >= 2


def test_a_trial_that_continues_another_takes_its_weights(
    run_script: Callable[..., tuple[int, str, str]], warm_cli: WarmCli, tmp_path: Path
) -> None:
    """`trial continue` starts a trial with the weights of the other one, and everything else begins from nothing."""
    run_script(LEADING, "1")
    continued = warm_cli.run(tmp_path, "trial", "continue", "1")

    assert "trial 2 failed (killed by SIGKILL)" in continued.errors, "it has died after its first pass, as told"
    (report,) = client.get_trial(2).iter_metrics("training")
    assert (report.steps_completed, report.metrics["epoch"]) == (3, 1)


def test_an_interrupt_ends_the_trial_and_its_workers(start_script: Callable[..., Script]) -> None:
    """The first Ctrl-C is a stop after the pass, since the trainer asks for stops."""
    script = start_script(LEADING, "-1")
    script.read_until("epoch 1")
    workers = psutil.Process(script.process.pid).children(recursive=True)
    script.process.send_signal(signal.SIGINT)
    _, _, errors = script.wait(120)

    assert "stopping at the next step" in errors
    assert client.get_trial(1).state.name == "PAUSED"
    wait_for(lambda: not any(worker.is_running() for worker in workers))


@pytest.mark.parametrize(
    ("ending", "state", "reason"),
    [("", "COMPLETED", ""), ("3", "ERROR", "SystemExit: 3")],
)
def test_a_program_may_exit_within_its_trainer(
    run_script: Callable[..., tuple[int, str, str]], ending: str, state: str, reason: str
) -> None:
    """sys.exit() within a trainer ends the trial as outside: without a status it is completed."""
    status, _, errors = run_script(
        f"""
        import sys
        from sgd.creators import CREATORS
        from core_sdk.sgd import PyTorchTrainer

        with PyTorchTrainer(**CREATORS):
            sys.exit({ending})
    """,
        PYTHONPATH=str(Path(__file__).parents[1]),
    )

    assert status == int(ending or 0), errors
    trial = client.get_trial(1)
    assert (trial.state.name, trial.reason) == (state, reason)


def test_two_trainers_of_one_seed_have_the_same_losses() -> None:
    """Trainers with the same seed have the same losses; a resumed trial keeps its seed, and a Context has its own."""
    seeds, losses = [], []
    for seed, num_replicas, job_id in ((7, 1, "line"), (7, 2, None), (8, 1, None), (8, 1, "line")):
        with PyTorchTrainer(**SHUFFLED, num_replicas=num_replicas, seed=seed, job_id=job_id) as trainer:
            losses.append([trainer.train()["train_loss"] for _ in range(2)])
            seeds.append(trainer.context.info.trial.trial_seed)

    assert seeds == [7, 7, 8, 7]
    assert losses[0] == pytest.approx(losses[1])
    assert losses[0] != pytest.approx(losses[2])
    with core.init(seed=7) as context, pytest.raises(ValueError, match="seed and context were given"):
        PyTorchTrainer(**CREATORS, context=context, seed=8)


def test_a_trainer_names_its_trial() -> None:
    """Arguments of a trainer name its trial; they are refused together with a Context, whose trial has a name."""
    with PyTorchTrainer(**CREATORS, trial_name="wide", labels=["new"], notes="Twice as *wide*."):
        pass

    trial = client.get_trial(1)
    assert (trial.name, trial.labels, trial.notes) == ("wide", {"new"}, "Twice as *wide*.")
    with core.init() as context, pytest.raises(ValueError, match="labels and context were given"):
        PyTorchTrainer(**CREATORS, context=context, labels=["new"])


def test_what_is_kept_of_a_checkpoint_can_be_chosen(tmp_path: Path) -> None:
    """`keep` chooses what is taken from a checkpoint; the rest begins from nothing, and no step is counted twice."""
    path = tmp_path / "state"
    with PyTorchTrainer(**CREATORS, job_id="line") as trainer:
        trainer.train()
        trainer.save(path)
        trainer.save()
        weight = trainer.get_model().weight

    found = []
    slower = {**CREATORS, "optimizer_creator": lambda model, _: torch.optim.SGD(model.parameters(), lr=0.01)}
    for keep in (None, {"models", "training"}, "model"):
        with PyTorchTrainer(**slower, job_id="line", keep=keep) as trainer:
            found.append((trainer.apply_all_workers(_lr), trainer.epoch))
            assert torch.equal(trainer.get_model().weight, weight)
            with pytest.raises(ValueError, match="keep has 'model'; it may have models, optimizers, lr_schedulers"):
                trainer.restore(path, keep={"model"})
            trainer.restore(path, keep={"optimizers"})
            assert (trainer.apply_all_workers(_lr), trainer.epoch) == ([0.1], found[-1][1])
            if keep == "model":
                trainer.train()

    assert found == [([0.1], 1), ([0.01], 1), ([0.01], 0)]
    assert [report.steps_completed for report in client.get_trial(1).iter_metrics("training")] == [4, 8]
    with pytest.raises(ValueError, match="keep is 'models'; it must be"):
        PyTorchTrainer(**CREATORS, keep="models")


def test_a_resumed_trainer_may_be_asked_everything_before_its_first_pass() -> None:
    """Before its first pass, a resumed trainer and its workers answer everything as without the resume."""
    asked = []
    for _ in range(2):
        with PyTorchTrainer(**CREATORS, job_id="asking") as trainer:
            if not trainer.epoch:
                trainer.train()
                trainer.save()
            weight = trainer.get_model().weight.tolist()
            asked.append([answers(trainer), trainer.validate(), weight, *trainer.apply_all_workers(_answers)])

    assert asked[0] == asked[1]
    assert "Error:" not in str(asked[0])


def _answers(runner: Runner) -> dict[str, object]:
    return {**answers(runner), "lr": _lr(runner)}


def _lr(runner: Runner) -> float:
    return float(runner.optimizers[0].param_groups[0]["lr"])


def test_a_context_has_one_trainer() -> None:
    """A Context accepts one trainer; a second one is refused, unless the first one never began."""
    with core.init() as context:
        with pytest.raises(WorkerFailedError):
            PyTorchTrainer(**{**CREATORS, "model_creator": dict}, context=context)
        with PyTorchTrainer(**CREATORS, context=context) as trainer:
            with pytest.raises(ValueError, match="Context of trial 1 has had its trainer"):
                PyTorchTrainer(**CREATORS, context=context)
            assert trainer.train()["epoch"] == 1
        with pytest.raises(ValueError, match="has had its trainer"):
            PyTorchTrainer(**CREATORS, context=context)
