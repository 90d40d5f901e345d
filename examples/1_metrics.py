"""Step 1: the same script reports its metrics."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import digits
from core_sdk import core


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_digits, test_digits = digits.load()
    loader = DataLoader(TensorDataset(*train_digits), args.batch_size, shuffle=True)
    model = digits.make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)

    steps_completed = 0
    for epoch in range(args.epochs):
        for batch in loader:
            loss = digits.train_step(model, optimizer, batch)
            steps_completed += 1
            if steps_completed % 15 == 0:
                core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"loss": loss})
        test_loss, accuracy = digits.evaluate(model, test_digits)
        print(f"epoch {epoch + 1}, step {steps_completed}: loss {test_loss:.3f}, accuracy {accuracy:.3f}", flush=True)
        core_context.train.report_validation_metrics(
            steps_completed=steps_completed, metrics={"loss": test_loss, "accuracy": accuracy}
        )
        core_context.train.report_progress((epoch + 1) / args.epochs)

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
