"""Step 5: the same training on several processes, with PyTorch's DistributedDataParallel. They stop and go on as one.

python -m launch.torch_distributed --nproc-per-node=2 -- python examples/5_distributed.py
"""

import argparse

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

import core_sdk as det
import digits


def main(args: argparse.Namespace, core_context: det.core.Context) -> None:
    distributed = core_context.distributed
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    device = torch.device("cuda", distributed.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    train_digits, test_digits = (part.to(device) for part in digits.load())
    model = digits.make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    epochs_completed, steps_completed = load_state(core_context, model, optimizer)
    parallel_model = DistributedDataParallel(model)

    for epoch in range(epochs_completed, args.epochs):
        # The order is the same on all ranks, and each takes its own share of every batch.
        for batch in train_digits.batches(args.batch_size, seed=args.seed + epoch):
            mine = digits.share(batch, distributed.rank, distributed.size)
            loss = digits.train_step(parallel_model, optimizer, mine)
            steps_completed += 1
            if steps_completed % 15 == 0:
                core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"loss": loss})
        test_loss, accuracy = digits.evaluate(model, test_digits)
        print(f"epoch {epoch + 1}, step {steps_completed}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
        # On other ranks than the chief, reports do nothing.
        core_context.train.report_validation_metrics(
            steps_completed=steps_completed, metrics={"loss": test_loss, "accuracy": accuracy}
        )
        core_context.train.report_progress((epoch + 1) / args.epochs)
        if distributed.rank == 0:
            save_state(core_context, model, optimizer, epoch + 1, steps_completed)
        # True on all ranks in the same epoch, whichever of them was asked to stop.
        if core_context.preempt.should_preempt():
            return

    _, accuracy = digits.evaluate(model, test_digits)
    print(f"accuracy {accuracy:.3f} on the test images (expected: {digits.EXPECTED_ACCURACY} or more)")


def save_state(
    core_context: det.core.Context,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    epochs_completed: int,
    steps_completed: int,
) -> None:
    state = {
        "epochs_completed": epochs_completed,
        "steps_completed": steps_completed,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    with core_context.checkpoint.store_path({"steps_completed": steps_completed}) as (path, _storage_id):
        torch.save(state, path / "state.pt")


def load_state(
    core_context: det.core.Context, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, int]:
    """The numbers of epochs and steps that are completed."""
    latest_checkpoint = core_context.info.latest_checkpoint
    if latest_checkpoint is None:
        return 0, 0
    with core_context.checkpoint.restore_path(latest_checkpoint) as path:
        state = torch.load(path / "state.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epochs_completed"], state["steps_completed"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="over all ranks")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_arguments()
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    distributed_context = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed_context, name="digits", hparams=vars(args)) as core_context:
        main(args, core_context)
    torch.distributed.destroy_process_group()
