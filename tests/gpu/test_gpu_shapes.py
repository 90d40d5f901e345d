"""The shapes of a training that place it on a GPU themselves: functions, creators, and a Trial that is split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from parts import needs
from processes import Script

from core_sdk import client
from core_sdk._machine.processes import STOPPED

pytestmark = needs("gpu")

RunScript = Callable[..., tuple[int, str, str]]

FUNCTION = """
    import itertools
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from core_sdk import train
    from core_sdk.train import ScalingConfig
    from core_sdk.train.torch import TorchTrainer, get_device, prepare_data_loader, prepare_model

    def loader():
        data = TensorDataset(torch.arange(1.0, 41.0).reshape(40, 1))
        return prepare_data_loader(DataLoader(data, batch_size=4, shuffle=True, pin_memory=True, num_workers=2))

    def samples(batches):
        return [batch.flatten().tolist() for (batch,) in batches]

    def train_func(config):
        model = prepare_model(torch.nn.Linear(1, 1))
        assert get_device() == next(model.parameters()).device == torch.device("cuda", 0)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
        seen = []
        batches = loader()
        for index, (batch,) in enumerate(batches):
            assert batch.device == get_device()
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(batch.flatten().tolist())
            if index == 3:
                position = batches.state_dict()
        assert sorted(itertools.chain(*seen)) == [float(number) for number in range(1, 41)]
        resumed = loader()
        resumed.load_state_dict(position)
        assert samples(resumed) == seen[4:]
        train.report({"loss": loss.item()})

    if __name__ == "__main__":
        TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=1, use_gpu=True)).fit()
"""


def test_a_function_trains_on_a_gpu(run_script: RunScript) -> None:
    """A worker gets the GPU, batches that are copied ahead, and a position that does not count what is ahead."""
    status, _, errors = run_script(FUNCTION)

    assert status == 0, errors
    (report,) = client.get_trial(1).iter_metrics()
    assert report.metrics["loss"] >= 0


CREATORS = """
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset
    from core_sdk.sgd import PyTorchTrainer

    def model_creator(config):
        return nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.Linear(32, 1))

    def data_creator(config):
        inputs = torch.linspace(-1, 1, 512).reshape(64, 8)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        return data, data

    def optimizer_creator(model, config):
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def trainer():
        return PyTorchTrainer(
            model_creator=model_creator, data_creator=data_creator, optimizer_creator=optimizer_creator,
            loss_creator=nn.MSELoss, num_replicas=1, use_gpu=True, use_fp16=True, batch_size=8, config={}, seed=1,
        )

    if __name__ == "__main__":
        with trainer() as one:
            one.train()
            path = one.save("trained.pt")
            expected = [one.train()["train_loss"] for _ in range(2)]
            validated = one.validate()["validation_loss"]
        with trainer() as other:
            other.restore(path)
            assert [other.train()["train_loss"] for _ in range(2)] == expected
            assert other.validate()["validation_loss"] == validated
        print("done")
"""


def test_creators_train_on_a_gpu_in_mixed_precision(run_script: RunScript) -> None:
    """A replica with float16 and scaled losses trains, saves and goes on exactly."""
    status, output, errors = run_script(CREATORS)

    assert (status, output.split()[-1:]) == (0, ["done"]), errors


# Stopped in the batch of this index, if there is one.
TRIAL = """
    import os
    import signal
    import sys
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from torch.utils.data import TensorDataset
    from core_sdk import pytorch

    class Trial(pytorch.PyTorchTrial):
        def __init__(self, context):
            self.context = context
            layers = torch.nn.Linear(4, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1)
            model = torch.nn.Sequential(*layers)
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
            self.model = context.wrap_model(model, strategy="fsdp", units=torch.nn.Linear, mp_policy=policy)
            self.optimizer = context.wrap_optimizer(torch.optim.AdamW(self.model.parameters(), lr=0.01))

        def build_training_data_loader(self):
            data = TensorDataset(torch.linspace(0, 1, 240).reshape(60, 4))
            return pytorch.DataLoader(data, batch_size=6, shuffle=True)

        def build_validation_data_loader(self):
            return pytorch.DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=4)

        def train_batch(self, batch, epoch_idx, batch_idx):
            loss = self.model(batch[0]).float().square().mean()
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            if batch_idx == int(sys.argv[1]) and self.context.core_context.info.latest_checkpoint is None:
                os.kill(os.getpid(), signal.SIGTERM)
            return {"loss": loss}

        def evaluate_batch(self, batch, batch_idx):
            return {"error": self.model(batch[0]).float().square().mean()}

    with pytorch.init(seed=4) as context:
        assert context.device.type == "cuda"
        pytorch.Trainer(Trial(context), context).fit(max_length=pytorch.Epoch(2), reporting_period=pytorch.Batch(1))
"""


def losses(trial_id: int) -> list[tuple[int | None, Any]]:
    reports = client.get_trial(trial_id).iter_metrics("training")
    return [(report.steps_completed, report.metrics["loss"]) for report in reports]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_trial_that_is_split_over_one_gpu_goes_on_exactly(start_script: Callable[..., Script]) -> None:
    """A Trial with FSDP2 in bfloat16 and dropout is stopped by SIGTERM and goes on as if it had not been."""
    job = {"CORE_SDK_JOB_ID": "split"}

    stopped = start_script(TRIAL, "7", **job).wait()
    state = client.get_trial(1).state.name
    resumed = start_script(TRIAL, "7", **job).wait()
    undisturbed = start_script(TRIAL, "-1").wait()

    assert (stopped[0], state, resumed[0], undisturbed[0]) == (STOPPED, "PAUSED", 0, 0), (stopped, resumed, undisturbed)
    assert len(losses(1)) == 20
    assert losses(1) == losses(2)
