"""Step 5 for models that are too large for one rank: each rank holds and stores its own shard of model and optimizer.

python -m launch.torch_distributed --nproc-per-node=2 -- python examples/5_sharded.py
"""

import argparse

import torch
import torch.distributed
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import digits
from core_sdk import core


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    distributed = core_context.distributed
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    device = torch.device("cuda", distributed.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)  # the one that fully_shard() uses
    train_digits, test_digits = (part.to(device) for part in digits.load())
    model = digits.make_model().to(device)
    fully_shard(model)  # in a large model, call it for each layer first
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)

    epochs_completed, steps_completed = load_state(core_context, model, optimizer)
    for epoch in range(epochs_completed, args.epochs):
        torch.manual_seed(args.seed + epoch)  # dropout draws the same after a resume
        for batch in train_digits.batches(args.batch_size, seed=args.seed + epoch):
            mine = digits.share(batch, distributed.rank, distributed.size)
            loss = digits.train_step(model, optimizer, mine)
            steps_completed += 1
        test_loss, accuracy = digits.evaluate(model, test_digits)
        core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"loss": loss})
        core_context.train.report_validation_metrics(
            steps_completed=steps_completed, metrics={"loss": test_loss, "accuracy": accuracy}
        )
        core_context.train.report_progress((epoch + 1) / args.epochs)
        if distributed.rank == 0:
            print(f"epoch {epoch + 1}, step {steps_completed}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
        save_state(core_context, model, optimizer, epoch + 1, steps_completed)
        if core_context.preempt.should_preempt():
            return

    _, accuracy = digits.evaluate(model, test_digits)  # all ranks call it, because each holds a part of the model
    if distributed.rank == 0:
        print(f"accuracy {accuracy:.3f} on the test images (expected: {digits.EXPECTED_ACCURACY} or more)")


def save_state(
    core_context: core.Context,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    epochs_completed: int,
    steps_completed: int,
) -> None:
    """Every rank writes what it holds. The checkpoint is the union of all files, or does not exist."""
    metadata = {"steps_completed": steps_completed, "epochs_completed": epochs_completed}
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save(  # type: ignore[attr-defined]
        {"model": model_state, "optimizer": optimizer_state},
        storage_writer=core_context.checkpoint.dcp_writer(metadata),
    )


def load_state(core_context: core.Context, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """The numbers of epochs and steps that are completed. Another number of ranks may have stored them."""
    latest_checkpoint = core_context.info.latest_checkpoint
    if latest_checkpoint is None:
        return 0, 0
    metadata = core_context.checkpoint.get_metadata(latest_checkpoint)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load(  # type: ignore[attr-defined]
        {"model": model_state, "optimizer": optimizer_state},
        storage_reader=core_context.checkpoint.dcp_reader(latest_checkpoint),
    )
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    return metadata["epochs_completed"], metadata["steps_completed"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="over all ranks")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    with core.init(distributed=core.DistributedContext.from_torch_distributed(), name="digits-sharded") as core_context:
        main(parse_arguments(), core_context)
    torch.distributed.destroy_process_group()
