"""Step 0: a training script of everyday PyTorch. It knows nothing of Core SDK."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import digits


def main(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_digits, test_digits = digits.load()
    loader = DataLoader(TensorDataset(*train_digits), args.batch_size, shuffle=True)
    model = digits.make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)

    steps_completed = 0
    for epoch in range(args.epochs):
        for batch in loader:
            digits.train_step(model, optimizer, batch)
            steps_completed += 1
        test_loss, accuracy = digits.evaluate(model, test_digits)
        print(f"epoch {epoch + 1}, step {steps_completed}: loss {test_loss:.3f}, accuracy {accuracy:.3f}", flush=True)

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
    main(parse_arguments())
