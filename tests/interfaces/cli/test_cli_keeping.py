"""`core-sdk trial continue --keep` says what the new trial keeps of the checkpoint, in each shape."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest
from interfaces.cli.commands import Cli, WriteScript

OF_A_CONTEXT = """
    import torch
    from core_sdk import core, loop

    with core.init() as context:
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=context.info.trial.hparams["lr"])
        training = {"steps": 0}
        state = loop.State(models=model, optimizers=optimizer, training=training)
        state.restore(context, keep="all")
        print("found", optimizer.param_groups[0]["lr"], training["steps"])
        training["steps"] += 1
        state.save(context, steps_completed=training["steps"])
"""

OF_A_TRAINER = """
    import torch
    from core_sdk import pytorch

    class Trial(pytorch.PyTorchTrial):
        def __init__(self, context):
            self.context = context
            self.model = context.wrap_model(torch.nn.Linear(1, 1))
            optimizer = torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"))
            self.optimizer = context.wrap_optimizer(optimizer)

        def build_training_data_loader(self):
            return pytorch.DataLoader(torch.rand(4, 1), batch_size=4)

        def build_validation_data_loader(self):
            return pytorch.DataLoader(torch.rand(4, 1), batch_size=4)

        def train_batch(self, batch, epoch_idx, batch_idx):
            print("found", self.optimizer.param_groups[0]["lr"], batch_idx)
            loss = self.model(batch).square().mean()
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

        def evaluate_batch(self, batch):
            return {"loss": 0.0}

    with pytorch.init() as context:
        pytorch.Trainer(Trial(context), context).fit(test_mode=True, keep="all")
"""

OF_A_CREATOR_TRAINER = """
    import torch
    from core_sdk.sgd import PyTorchTrainer

    with PyTorchTrainer(
        model_creator=lambda config: torch.nn.Linear(1, 1),
        data_creator=lambda config: torch.utils.data.TensorDataset(torch.rand(4, 1), torch.rand(4, 1)),
        optimizer_creator=lambda model, config: torch.optim.SGD(model.parameters(), lr=config["lr"]),
        loss_creator=torch.nn.MSELoss,
        config={"lr": 1.0},
        keep="all",
    ) as trainer:
        (lr,) = trainer.apply_all_workers(lambda runner: runner.optimizers[0].param_groups[0]["lr"])
        print("found", lr, trainer.epoch)
        trainer.train()
        trainer.save()
"""


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(OF_A_CONTEXT, id="Context"),
        pytest.param(OF_A_TRAINER, id="Trial"),
        pytest.param(OF_A_CREATOR_TRAINER, id="sgd"),
    ],
)
def test_a_trial_is_continued_with_what_the_command_line_keeps(
    cli: Cli, write_script: WriteScript, source: str
) -> None:
    """--keep decides what is restored, whatever kind of script the trial runs."""
    script = write_script(source)

    def found(*arguments: str) -> list[str]:
        ended = cli(*arguments, "--hparam", "lr=0.25")
        assert ended.status == 0, ended.output + ended.errors
        return re.findall(r"found (.*)", ended.output)

    cli("run", "--hparam", "lr=0.5", "--", sys.executable, str(script))
    assert found("trial", "continue", "1", "--keep", "model") == ["0.25 0"]
    assert found("trial", "continue", "1", "--keep", "models,training") == ["0.25 1"]
    assert found("trial", "continue", "1", "--keep", "all") == ["0.5 1"]
    unknown = cli("trial", "continue", "1", "--keep", "wheels")

    assert unknown.status == 1
    assert "keep has 'wheels'; it may have models, optimizers" in unknown.output


OF_A_FUNCTION = """
    from core_sdk import train
    from core_sdk.train import ScalingConfig
    from core_sdk.train.torch import TorchTrainer

    TorchTrainer(lambda: train.get_checkpoint(), scaling_config=ScalingConfig(num_workers=0)).fit()
"""

OF_A_SCRIPT = """
    import sys
    from core_sdk import core

    with core.init() as context:
        if sys.argv[1:]:
            print("keeps", context.checkpoint.what_to_keep())
        if context.info.latest_checkpoint is not None:
            with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
                print((path / "state").read_text())
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            (path / "state").write_text("restored")
"""


def test_a_script_that_cannot_obey_fails(cli: Cli, write_script: WriteScript, tmp_path: Path) -> None:
    """A script that cannot apply --keep fails before it restores; a script that reads it and a resume succeed."""
    script = write_script(OF_A_SCRIPT)
    function = tmp_path / "function.py"
    function.write_text(textwrap.dedent(OF_A_FUNCTION))
    cli("run", "--", sys.executable, str(script))

    refused = cli("trial", "continue", "1", "--keep", "model")
    asking = cli("trial", "continue", "1", "--keep", "model", "--", sys.executable, str(script), "ask")
    resumed = cli("trial", "resume", "3", "--again", "--", sys.executable, str(script))
    whole = cli("trial", "continue", "1", "--keep", "all")
    of_function = cli("trial", "continue", "1", "--keep", "model", "--", sys.executable, str(function))
    misspelt = cli("trial", "continue", "1", "--keep", "model,")

    assert refused.status == 1
    assert "CheckpointError: trial 2 was continued with --keep model" in refused.output
    assert [asking.output, resumed.output, whole.output] == ["keeps model\nrestored\n", "restored\n", "restored\n"]
    assert of_function.status == 1
    assert "CheckpointError: trial 5 was continued with --keep model" in of_function.output
    assert (misspelt.status, "has an empty name" in misspelt.errors) == (2, True)
