"""A training on a GPU goes on bit for bit: with dropout there, in bfloat16, and in float16 with scaled losses."""

from __future__ import annotations

import io
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from parts import needs
from processes import Script
from torch import nn
from torch.utils.data import TensorDataset

from core_sdk import client, loop, pytorch
from core_sdk._machine.processes import STOPPED
from core_sdk.loop import _rng as rng
from core_sdk.loop._host_memory import HostMemory

pytestmark = needs("gpu")

NUM_STEPS = 16


class Seen(NamedTuple):
    loss: str
    scale: float
    drawn: float


class Training:
    def __init__(self, dtype: torch.dtype) -> None:
        loop.seed_all(3)
        self._dtype = dtype
        layers = [nn.Linear(8, 64), nn.Dropout(0.3), nn.ReLU(), nn.Linear(64, 1)]
        self.model = nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, fused=True)
        # So large at first that gradients overflow, and growing so fast that they do so again.
        self.scaler = torch.amp.GradScaler(
            "cuda", init_scale=2.0**20, growth_interval=2, growth_factor=8.0, enabled=dtype == torch.float16
        )
        self.progress = {"step": 0}
        self.state = loop.State(model=self.model, optimizer=self.optimizer, scaler=self.scaler, progress=self.progress)

    def run(self) -> Iterator[Seen]:
        """Trains to the end, and stands still after each step."""
        while self.progress["step"] < NUM_STEPS:
            inputs = torch.randn(16, 8, device="cuda")
            with torch.autocast("cuda", self._dtype, enabled=self._dtype != torch.float32):
                loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.progress["step"] += 1
            drawn = torch.rand((), device="cuda").item()
            yield Seen(float(loss.detach()).hex(), self.scaler.get_scale(), drawn)


def stored(state: Any) -> Any:
    """Writes a state as a background save does, and reads it back."""
    file = io.BytesIO()
    torch.save(HostMemory().copy(state), file)
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_loop_goes_on_exactly_after_each_step(dtype: torch.dtype) -> None:
    """The losses, the scale and the random numbers after a resume are those without one, whatever the step."""
    training = Training(dtype)
    checkpoints, undisturbed = [], []
    for seen in training.run():
        undisturbed.append(seen)
        checkpoints.append(stored(training.state.state_dict()))

    scales = [seen.scale for seen in undisturbed]
    pairs = list(itertools.pairwise(scales))
    if dtype == torch.float16:
        assert any(one > other for one, other in pairs) and any(one < other for one, other in pairs)
    for num_steps, checkpoint in enumerate(checkpoints, start=1):
        resumed = Training(dtype)
        torch.cuda.manual_seed(99)
        resumed.state.load_state_dict(checkpoint)
        assert list(resumed.run()) == undisturbed[num_steps:]


def test_random_numbers_are_restored_before_a_script_uses_the_gpu(
    run_script: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """A seed that the script has set before the restore does not come after it, when CUDA begins."""
    torch.cuda.manual_seed(1)
    torch.rand(3, device="cuda")
    torch.save(rng.capture(), tmp_path / "random.pt")
    expected = torch.rand(3, device="cuda").tolist()

    status, output, errors = run_script(
        """
        import torch
        from core_sdk.loop import _rng as rng

        torch.manual_seed(1)
        assert not torch.cuda.is_initialized()
        rng.restore(torch.load("random.pt", weights_only=True))
        print(torch.rand(3, device="cuda").tolist())
        """
    )

    assert (status, output) == (0, f"{expected}\n"), errors


class MixedTrial(pytorch.PyTorchTrial):
    """Trains with dropout in float16, and stops itself in one of its batches."""

    def __init__(self, context: pytorch.PyTorchTrialContext, *, has_own_scaler: bool, stops_at: int | None) -> None:
        self.context = context
        self.stops_at = stops_at
        self.seen: list[tuple[int, str, float, float]] = []
        self.scaler: Any = None
        if has_own_scaler:
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0**20, growth_interval=2, growth_factor=8.0)
            self.scaler = context.wrap_scaler(scaler)
        else:
            context.experimental.use_amp()
        self.model = context.wrap_model(nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        data = TensorDataset(torch.linspace(0, 1, 240).reshape(60, 4))
        return pytorch.DataLoader(data, batch_size=6, shuffle=True, num_workers=2, pin_memory=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=4)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        (inputs,) = batch
        assert inputs.is_cuda
        with torch.autocast("cuda", torch.float16):
            loss = self.model(inputs).square().mean()
        self.context.backward(loss if self.scaler is None else self.scaler.scale(loss))
        self.context.step_optimizer(self.optimizer, scaler=self.scaler)
        scale = 0.0
        if self.scaler is not None:
            self.scaler.update()
            scale = self.scaler.get_scale()
        self.seen.append((batch_idx, float(loss.detach()).hex(), scale, torch.rand((), device="cuda").item()))
        if batch_idx == self.stops_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": self.model(batch[0]).square().mean()}


def fitted(job_id: str, *, has_own_scaler: bool, stops_at: int | None = None) -> list[Any]:
    """Begins the training of a job, or goes on with it, and returns what it has seen of each batch."""
    with pytorch.init(job_id=job_id, seed=5) as context:
        assert context.device.type == "cuda"
        trial = MixedTrial(context, has_own_scaler=has_own_scaler, stops_at=stops_at)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Epoch(2), reporting_period=pytorch.Batch(3))
    return trial.seen


@pytest.mark.parametrize("has_own_scaler", [False, True], ids=["use_amp", "wrap_scaler"])
def test_a_trainer_in_mixed_precision_goes_on_exactly(has_own_scaler: bool) -> None:
    """A Trainer with float16, scaled losses, dropout and pinned batches goes on as if it had not been stopped."""
    undisturbed = fitted("undisturbed", has_own_scaler=has_own_scaler)

    stopped = fitted("stopped", has_own_scaler=has_own_scaler, stops_at=7)
    resumed = fitted("stopped", has_own_scaler=has_own_scaler)

    assert len(undisturbed) == 20
    assert 8 <= len(stopped) <= 9
    assert stopped == undisturbed[: len(stopped)]
    assert resumed == undisturbed[len(stopped) :]


# Stopped after the batch of this number, if there is one.
STOPPED_TRAINING = """
    import multiprocessing
    import os
    import subprocess
    import sys
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from core_sdk import core, loop

    stops_at = int(sys.argv[1])
    with core.init(name="digits") as context:
        loop.seed_all(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 1)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        data = TensorDataset(torch.linspace(0, 1, 240).reshape(60, 4))
        loader = DataLoader(data, batch_size=6, shuffle=True, num_workers=2, pin_memory=True)
        loader = loop.resumable(loader, seed=2)
        state = loop.State(model=model, optimizer=optimizer, loader=loader)
        is_resumed = state.restore(context)
        for epoch in range(loader.epoch, 2):
            for (inputs,) in loader:
                assert inputs.is_pinned()
                loss = model(inputs.to("cuda", non_blocking=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                context.train.report_training_metrics(loader.batches, {"loss": loss.detach()})
                if loader.batches == stops_at and not is_resumed:
                    workers = [str(each.pid) for each in multiprocessing.active_children()]
                    subprocess.run(["kill", "-TERM", str(os.getpid()), *workers], check=True)
                if context.preempt.should_preempt():
                    state.save(context, wait=False)
                    sys.exit()
"""


def losses(trial_id: int) -> list[tuple[int | None, Any]]:
    reports = client.get_trial(trial_id).iter_metrics("training")
    return [(report.steps_completed, report.metrics["loss"]) for report in reports]


def test_a_stop_beside_pinned_batches_is_saved_and_goes_on(start_script: Callable[..., Script], tmp_path: Path) -> None:
    """SIGTERM to a script with CUDA, loader workers and pinned memory: status 75, PAUSED, and an exact resume."""
    job = {"CORE_SDK_JOB_ID": "stopped"}

    stopped = start_script(STOPPED_TRAINING, "7", **job).wait()
    paused = client.get_trial(1)
    state, steps = paused.state.name, [each.metadata["steps_completed"] for each in paused.list_checkpoints()]
    resumed = start_script(STOPPED_TRAINING, "7", **job).wait()
    undisturbed = start_script(STOPPED_TRAINING, "0").wait()

    assert (stopped[0], resumed[0], undisturbed[0]) == (STOPPED, 0, 0), (stopped, resumed, undisturbed)
    assert "Traceback" not in stopped[2] + resumed[2] + undisturbed[2]
    assert (state, len(steps)) == ("PAUSED", 1)
    assert len(losses(1)) == 20
    assert losses(1) == losses(2)
