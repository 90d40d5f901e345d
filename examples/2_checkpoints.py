"""Step 2: the same script stores checkpoints, stops when it is asked to, and goes on where it stopped."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import digits
from core_sdk import core, loop


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_digits, test_digits = digits.load()
    loader = loop.resumable(DataLoader(TensorDataset(*train_digits), args.batch_size, shuffle=True), seed=args.seed)
    model = digits.make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    state = loop.State(model=model, optimizer=optimizer, loader=loader)
    state.restore(core_context)

    for epoch in range(loader.epoch, args.epochs):
        for batch in loader:
            loss = digits.train_step(model, optimizer, batch)
            if loader.batches % 15 == 0:
                core_context.train.report_training_metrics(steps_completed=loader.batches, metrics={"loss": loss})
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    with core.init(name="digits") as core_context:
        main(parse_arguments(), core_context)
