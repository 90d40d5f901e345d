"""Step 6: one training under torchrun, Horovod and DeepSpeed. Each has a class of its own; the loop is the same.

python -m launch.torch_distributed --nproc-per-node=2 -- python examples/6_frameworks.py
python -m launch.horovod -np 2 -- python examples/6_frameworks.py
python -m launch.deepspeed --num_gpus=2 -- python examples/6_frameworks.py --zero-stage 3
"""

import argparse
import os
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import digits
from core_sdk import core


class Framework(Protocol):
    distributed: core.DistributedContext
    device: torch.device
    model: torch.nn.Module
    has_shards: bool
    """Whether each rank holds, and stores, a part of the state."""

    def prepare(self, model: torch.nn.Module, args: argparse.Namespace) -> None: ...
    def train_step(self, batch: digits.Digits) -> float: ...
    def save(self, path: Path) -> None: ...
    def load(self, path: Path) -> None: ...
    def close(self) -> None: ...


class TorchDistributed:
    has_shards = False

    def __init__(self) -> None:
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        self.distributed = core.DistributedContext.from_torch_distributed()
        self.device = own_device(self.distributed.local_rank)

    def prepare(self, model: torch.nn.Module, args: argparse.Namespace) -> None:
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
        self.model: torch.nn.Module = DistributedDataParallel(model)

    def train_step(self, batch: digits.Digits) -> float:
        return digits.train_step(self.model, self.optimizer, batch)

    def save(self, path: Path) -> None:
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path / "state.pt")

    def load(self, path: Path) -> None:
        state = torch.load(path / "state.pt", map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def close(self) -> None:
        torch.distributed.destroy_process_group()


class Horovod(TorchDistributed):
    """Steps, saves and loads as in plain PyTorch."""

    def __init__(self) -> None:
        import horovod.torch

        self.hvd: Any = horovod.torch
        self.hvd.init()
        self.distributed = core.DistributedContext.from_horovod(self.hvd)
        self.device = own_device(self.distributed.local_rank)

    def prepare(self, model: torch.nn.Module, args: argparse.Namespace) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
        self.optimizer = self.hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self.model = model

    def close(self) -> None:
        self.hvd.shutdown()


class DeepSpeed:
    """With ZeRO a rank holds a part of the optimizer, in stage 2 of the gradients too, in stage 3 of the model too."""

    has_shards = True

    def __init__(self) -> None:
        import deepspeed

        self.deepspeed: Any = deepspeed
        self.deepspeed.init_distributed()
        self.distributed = core.DistributedContext.from_deepspeed()
        self.device = own_device(self.distributed.local_rank)

    def prepare(self, model: torch.nn.Module, args: argparse.Namespace) -> None:
        config = {"train_batch_size": args.batch_size, "zero_optimization": {"stage": args.zero_stage}}
        optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
        self.model, *_ = self.deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def train_step(self, batch: digits.Digits) -> float:
        self.model.train()
        loss = functional.cross_entropy(self.model(batch.images), batch.labels)
        self.model.backward(loss)
        self.model.step()
        return loss.item()

    def save(self, path: Path) -> None:
        self.model.save_checkpoint(path, tag="state", save_latest=False)

    def load(self, path: Path) -> None:
        self.model.load_checkpoint(path, tag="state")

    def close(self) -> None:
        self.model.destroy()
        torch.distributed.destroy_process_group()


def main(args: argparse.Namespace, core_context: core.Context, framework: Framework) -> None:
    distributed = core_context.distributed
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_digits, test_digits = (part.to(framework.device) for part in digits.load())
    # There is no dropout, because its random numbers would depend on the number of ranks.
    framework.prepare(digits.make_model(dropout=0.0).to(framework.device), args)
    epochs_completed, steps_completed = load_state(core_context, framework)

    for epoch in range(epochs_completed, args.epochs):
        # The order is the same on all ranks, and each takes its own share of every batch.
        for batch in train_digits.batches(args.batch_size, seed=args.seed + epoch):
            loss = framework.train_step(digits.share(batch, distributed.rank, distributed.size))
            steps_completed += 1
        test_loss, accuracy = digits.evaluate(framework.model, test_digits)
        core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"loss": loss})
        core_context.train.report_validation_metrics(
            steps_completed=steps_completed, metrics={"loss": test_loss, "accuracy": accuracy}
        )
        core_context.train.report_progress((epoch + 1) / args.epochs)
        if distributed.rank == 0:
            print(f"epoch {epoch + 1}, step {steps_completed}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
        save_state(core_context, framework, epoch + 1, steps_completed)
        if core_context.preempt.should_preempt():
            return

    _, accuracy = digits.evaluate(framework.model, test_digits)
    if distributed.rank == 0:
        print(f"accuracy {accuracy:.3f} on the test images (expected: {digits.EXPECTED_ACCURACY} or more)")


def save_state(core_context: core.Context, framework: Framework, epochs_completed: int, steps_completed: int) -> None:
    """All ranks save if each holds a part of the state, else only the chief."""
    metadata = {"steps_completed": steps_completed, "epochs_completed": epochs_completed}
    if framework.has_shards or core_context.distributed.rank == 0:
        with core_context.checkpoint.store_path(metadata, shard=framework.has_shards) as (path, _storage_id):
            framework.save(path)


def load_state(core_context: core.Context, framework: Framework) -> tuple[int, int]:
    """The numbers of epochs and steps that are completed."""
    latest_checkpoint = core_context.info.latest_checkpoint
    if latest_checkpoint is None:
        return 0, 0
    metadata = core_context.checkpoint.get_metadata(latest_checkpoint)
    with core_context.checkpoint.restore_path(latest_checkpoint) as path:
        framework.load(path)
    return metadata["epochs_completed"], metadata["steps_completed"]


def own_device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


FRAMEWORKS: dict[str, type[TorchDistributed] | type[DeepSpeed]] = {
    "torch": TorchDistributed,
    "horovod": Horovod,
    "deepspeed": DeepSpeed,
}


def framework_that_started_us() -> str:
    """Each launcher sets a variable that the others do not."""
    if "HOROVOD_SIZE" in os.environ:
        return "horovod"
    return "deepspeed" if "CROSS_SIZE" in os.environ else "torch"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=FRAMEWORKS, default=framework_that_started_us())
    parser.add_argument("--zero-stage", type=int, choices=[0, 1, 2, 3], default=2, help="DeepSpeed's")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="over all ranks")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_arguments()
    framework: Framework = FRAMEWORKS[args.framework]()
    with core.init(distributed=framework.distributed, name=f"digits-{args.framework}") as core_context:
        main(args, core_context, framework)
    framework.close()
