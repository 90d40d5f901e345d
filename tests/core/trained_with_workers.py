"""A script that trains with data-loader workers, in one of several shapes.

It waits at one place of the training until `sent` exists, which the test creates when it has sent its signals.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from waiting_samples import Samples, start_worker, wait_at  # type: ignore[import-not-found]

BATCH_SIZE = 4
SHAPE, os.environ["PLACE"], NUM_WORKERS, METHOD = sys.argv[1:5]
IS_PERSISTENT = "persistent" in sys.argv[5:]


def loading() -> dict[str, Any]:
    if NUM_WORKERS == "0":
        return {"batch_size": BATCH_SIZE}
    return {
        "batch_size": BATCH_SIZE,
        "num_workers": int(NUM_WORKERS),
        "multiprocessing_context": METHOD,
        "persistent_workers": IS_PERSISTENT,
        "worker_init_fn": start_worker,
    }


def ordinary() -> None:
    from core_sdk import core

    with core.init(distributed="torch") as context:
        _loop(context, DataLoader(Samples(), shuffle=True, **loading()), DataLoader(Samples(), **loading()))


def stateful() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

    from core_sdk import core

    with core.init(distributed="torch") as context:
        context.preempt.should_preempt()  # from here on, a stop is heard
        loader = StatefulDataLoader(Samples(), **loading())
        loader.state_dict()  # starts the workers
        _loop(context, loader, DataLoader(Samples(), **loading()))


def resumable() -> None:
    from core_sdk import core, loop

    with core.init(distributed="torch") as context:
        loader = loop.resumable(DataLoader(Samples(), shuffle=True, **loading()), seed=1)
        _loop(context, loader, DataLoader(Samples(), **loading()))


def trial() -> None:
    from core_sdk import pytorch

    class Trial(pytorch.PyTorchTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            self.context = context
            self.model = context.wrap_model(torch.nn.Linear(1, 1))
            self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=1e-4))

        def build_training_data_loader(self) -> Any:
            return pytorch.DataLoader(Samples(), shuffle=True, **loading())

        def build_validation_data_loader(self) -> Any:
            return pytorch.DataLoader(Samples(), **loading())

        def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
            return {"places": Places()}

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            wait_at("first batch")
            loss = self.model(batch).square().mean()
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            wait_at("validation")
            return {"error": self.model(batch).square().mean()}

    class Places(pytorch.PyTorchCallback):
        def on_training_epoch_end(self, epoch_idx: int) -> None:
            wait_at("between epochs")

        def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
            wait_at("saving")

    with pytorch.init() as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=pytorch.Epoch(1000),
            reporting_period=pytorch.Batch(1),
            validation_period=pytorch.Epoch(1),
            checkpoint_period=pytorch.Epoch(1),
        )


def function() -> None:
    from core_sdk.train import ScalingConfig
    from core_sdk.train.torch import TorchTrainer

    TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()


def train_func() -> None:
    import tempfile

    from core_sdk import train
    from core_sdk.train import Checkpoint
    from core_sdk.train.torch import prepare_data_loader

    os.environ["RANK"] = str(train.get_context().get_world_rank())
    loader = prepare_data_loader(DataLoader(Samples(), shuffle=True, **loading()))
    validation, step = DataLoader(Samples(), **loading()), 0
    train.should_preempt()
    while True:
        for _ in loader:
            wait_at("first batch")
            step += 1
            if train.should_preempt():
                with tempfile.TemporaryDirectory() as directory:
                    Path(directory, "state").touch()
                    train.report({"loss": 1.0}, checkpoint=Checkpoint.from_directory(directory))
                return
        wait_at("between epochs")
        for _ in validation:
            wait_at("validation")


def others() -> None:
    """Ends other processes than a loader's workers, and prints their exit statuses."""
    from core_sdk import core

    statuses = {}
    with core.init():
        for method in ("fork", "forkserver", "spawn"):
            batches = iter(DataLoader(Samples(), num_workers=1, multiprocessing_context=method))
            next(batches)
            process: Any = multiprocessing.get_context(method).Process(target=time.sleep, args=(60,))  # type: ignore[attr-defined]
            process.start()
            process.terminate()
            process.join()
            statuses[method] = process.exitcode
    print(statuses)


def _loop(context: Any, loader: Any, validation: Any) -> None:
    step, is_stopping = 0, context.preempt.should_preempt()
    while True:
        for _ in loader:
            wait_at("first batch")
            step += 1
            if context.distributed.rank == 0:
                context.train.report_training_metrics(step, {"loss": 1.0})
            if is_stopping := context.preempt.should_preempt():
                break
        if not is_stopping:
            wait_at("between epochs")
            for _ in validation:
                wait_at("validation")
        if context.distributed.rank == 0:
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                wait_at("saving")
                (path / "state").write_text(str(step))
        else:
            wait_at("saving")
        if is_stopping:
            Path("saved").touch()
            return


if __name__ == "__mp_main__":
    wait_at("starting")  # in a worker that is not forked from the script
if __name__ == "__main__":
    globals()[SHAPE]()
