"""A trial is built again from its checkpoint, without a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch.trials import LineTrial
from torch import nn

from core_sdk import client
from core_sdk.errors import StateMismatchError
from core_sdk.pytorch import Batch, CheckpointLoadContext, Trainer, init, load_trial_from_checkpoint_path
from core_sdk.pytorch._trial_class import TrialClassError


@pytest.fixture
def trained(tmp_path: Path) -> tuple[LineTrial, Path]:
    """Returns a trained trial and its downloaded checkpoint."""
    with init(hparams={"lr": 0.1}) as context:
        trial = LineTrial(context)
        result = Trainer(trial, context).fit(max_length=Batch(2))
    assert result.latest_checkpoint is not None
    return trial, Path(client.get_checkpoint(result.latest_checkpoint).download(str(tmp_path / "checkpoint")))


def weights(trial: Any) -> list[list[float]]:
    return [parameter.flatten().tolist() for parameter in trial.model.parameters()]


def test_a_trial_is_loaded_with_its_code_hyperparameters_and_weights(trained: tuple[LineTrial, Path]) -> None:
    """A loaded trial has the hyperparameters and weights of its checkpoint, and the class of the stored code."""
    trial, checkpoint = trained

    loaded = load_trial_from_checkpoint_path(checkpoint)

    assert type(loaded).__name__ == "LineTrial"
    assert not isinstance(loaded, LineTrial)
    assert loaded.context.get_hparam("lr") == 0.1  # type: ignore[attr-defined]
    assert weights(loaded) == weights(trial)


def test_the_class_and_its_arguments_can_be_given(trained: tuple[LineTrial, Path]) -> None:
    """A class that cannot be imported, as from a notebook, can be passed with its arguments."""
    trial, checkpoint = trained

    loaded = load_trial_from_checkpoint_path(checkpoint, LineTrial, {"batch_size": 3}, {"map_location": "cpu"})

    assert isinstance(loaded, LineTrial)
    assert loaded.batch_size == 3
    assert weights(loaded) == weights(trial)


def test_a_state_with_the_prefix_of_distributed_data_parallel_is_loaded(trained: tuple[LineTrial, Path]) -> None:
    """A state with the prefix "module." of DistributedDataParallel is loaded."""
    trial, checkpoint = trained
    file = checkpoint / "state_dict.pth"
    content = torch.load(file)
    content["models_state_dict"] = [
        {f"module.{name}": value for name, value in content["models_state_dict"][0].items()}
    ]
    torch.save(content, file)

    assert weights(load_trial_from_checkpoint_path(checkpoint)) == weights(trial)


def test_a_class_that_cannot_be_imported_is_named(trained: tuple[LineTrial, Path]) -> None:
    """A class that cannot be imported is named, together with the argument that helps."""
    _, checkpoint = trained
    file = checkpoint / "load_data.json"
    file.write_text(file.read_text().replace("LineTrial", "PlaneTrial"))

    with pytest.raises(TrialClassError, match="has no PlaneTrial") as raised:
        load_trial_from_checkpoint_path(checkpoint)

    assert "trial_class=MyTrial" in raised.value.__notes__[0]


def test_what_no_trainer_has_stored_is_refused(tmp_path: Path) -> None:
    """A directory that no Trainer has stored is refused before a trial is built."""
    with pytest.raises(StateMismatchError, match=r"has no load_data.json: no Trainer has stored it"):
        load_trial_from_checkpoint_path(tmp_path, LineTrial)


def test_another_model_is_refused(trained: tuple[LineTrial, Path]) -> None:
    """A checkpoint of another model is refused with the names that differ."""

    class Smaller(LineTrial):
        def __init__(self, context: Any) -> None:
            self.model = context.wrap_model(nn.Linear(1, 1))

    with pytest.raises(StateMismatchError, match=r"the checkpoint has no weight"):
        load_trial_from_checkpoint_path(trained[1], Smaller)


def test_arguments_of_torch_load_may_be_given_as_before(trained: tuple[LineTrial, Path]) -> None:
    """Arguments of torch.load may be given directly, with a warning, or in torch_load_kwargs, but not both."""
    with pytest.warns(FutureWarning, match="torch_load_kwargs"):
        load_trial_from_checkpoint_path(trained[1], map_location="cpu")
    with pytest.raises(ValueError, match="pass mmap in torch_load_kwargs"):
        load_trial_from_checkpoint_path(trained[1], torch_load_kwargs={"map_location": "cpu"}, mmap=True)


def test_a_loaded_trial_can_predict_and_nothing_else() -> None:
    """A loaded trial can predict; methods that need a training raise an error that says so."""
    context = CheckpointLoadContext()
    context.experimental.use_amp()
    model = nn.Linear(1, 1).double()

    assert context.wrap_model(model, strategy="fsdp", compile=True) is model
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    assert model(torch.ones(1, 1).double()).dtype == torch.float64
    context.backward(model(torch.ones(1, 1).double()).sum())
    context.step_optimizer(optimizer)
    for ask in (context.get_trial_id, context.get_trial_seed, context.get_tensorboard_path):
        with pytest.raises(RuntimeError, match=r"pytorch.init\(\) gives one that trains and reports"):
            ask()
    with pytest.raises(ValueError, match="there are no hyperparameters"):
        context.get_hparams()
