"""What all steps share: 1,797 handwritten digits that come with scikit-learn, a small network, and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

NUM_TEST_IMAGES = 360
EXPECTED_ACCURACY = 0.97
"""What every step reaches on the test images with its default arguments."""


class Digits(NamedTuple):
    """Images of shape (n, 1, 8, 8) with values from 0 to 1, and their labels of shape (n,)."""

    images: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Digits:
        return Digits(self.images.to(device), self.labels.to(device))

    def of_classes(self, classes: Sequence[int]) -> Digits:
        """The digits of these classes, whose labels count from 0."""
        chosen = torch.isin(self.labels, torch.tensor(classes))
        return Digits(self.images[chosen], torch.searchsorted(torch.tensor(classes), self.labels[chosen]))

    def dataset(self) -> TensorDataset:
        return TensorDataset(self.images, self.labels)

    def batches(self, batch_size: int, seed: int | None = None) -> Iterator[Digits]:
        """All digits once, in an order drawn from `seed`, or else from torch's own random numbers."""
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        for chosen in torch.split(torch.randperm(len(self.labels), generator=generator), batch_size):
            yield Digits(self.images[chosen], self.labels[chosen])


def load() -> tuple[Digits, Digits]:
    """The training digits and the test digits: the same split every time."""
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(bunch.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[:NUM_TEST_IMAGES], order[NUM_TEST_IMAGES:]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])


def share(batch: Digits, rank: int, num_ranks: int) -> Digits:
    """One rank's part of a batch. If a batch cannot be divided evenly, ranks see some digits twice."""
    size = -(-len(batch.labels) // num_ranks)
    chosen = torch.arange(rank * size, (rank + 1) * size) % len(batch.labels)
    return Digits(batch.images[chosen], batch.labels[chosen])


def make_model(num_filters: int = 16, dropout: float = 0.25, num_classes: int = 10) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, num_filters, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(num_filters, 2 * num_filters, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * num_filters * 4 * 4, num_classes),
    )


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Sequence[Tensor]) -> float:
    """Makes one step of training with a batch of images and labels; returns the loss before it."""
    images, labels = batch
    model.train()
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(model: nn.Module, digits: Digits) -> tuple[float, float]:
    """The mean loss and the accuracy."""
    model.eval()
    outputs = model(digits.images)
    loss = functional.cross_entropy(outputs, digits.labels)
    accuracy = (outputs.argmax(dim=1) == digits.labels).float().mean()
    return loss.item(), accuracy.item()
