"""Step 5: the same training on several processes, with PyTorch's DistributedDataParallel. They stop and go on as one.

python -m launch.torch_distributed --nproc-per-node=2 -- python examples/5_distributed.py
"""

import argparse

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import digits
from core_sdk import core, loop


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    distributed = core_context.distributed
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    device = torch.device("cuda", distributed.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    train_digits, test_digits = (part.to(device) for part in digits.load())
    # The order is the same on all ranks, and each takes its own share of every batch.
    data = DataLoader(TensorDataset(*train_digits), args.batch_size // distributed.size, shuffle=True)
    loader = loop.resumable(data, seed=args.seed, distributed=distributed)
    model = digits.make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    state = loop.State(model=model, optimizer=optimizer, loader=loader)
    state.restore(core_context)
    parallel_model = DistributedDataParallel(model)

    for epoch in range(loader.epoch, args.epochs):
        for batch in loader:
            loss = digits.train_step(parallel_model, optimizer, batch)
            # Each rank's report is kept. Lists and charts show the chief's unless you ask for a rank.
            if loader.batches % 15 == 0:
                core_context.train.report_training_metrics(steps_completed=loader.batches, metrics={"loss": loss})
            # True on all ranks after the same batch, whichever of them was asked to stop.
            if core_context.preempt.should_preempt():
                state.save(core_context)
                return
        test_loss, accuracy = digits.evaluate(model, test_digits)
        print(f"epoch {epoch + 1}, step {loader.batches}: loss {test_loss:.3f}, accuracy {accuracy:.3f}", flush=True)
        core_context.train.report_validation_metrics(
            steps_completed=loader.batches, metrics={"loss": test_loss, "accuracy": accuracy}
        )
        core_context.train.report_progress((epoch + 1) / args.epochs)
        state.save(core_context)

    _, accuracy = digits.evaluate(model, test_digits)
    print(f"accuracy {accuracy:.3f} on the test images (expected: {digits.EXPECTED_ACCURACY} or more)")


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
    distributed_context = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed_context, name="digits", hparams=vars(args)) as core_context:
        main(args, core_context)
    torch.distributed.destroy_process_group()
