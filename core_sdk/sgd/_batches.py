"""The batches of one pass over the data, as this worker sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from core_sdk.loop._plan import Draw


class Batches(Iterator[Any]):
    """The batches of one pass, which can be iterated over once. The length is the number of batches.

    A pass ends with the epoch, or else after `num_steps` batches, which may belong to several epochs.
    """

    def __init__(
        self, drawn: Iterator[tuple[Draw, Any]], num_batches: int | None, num_steps: int | None = None
    ) -> None:
        """`drawn` may go on after this pass."""
        self._drawn = drawn
        self._num_steps = num_steps
        self._num_batches = num_batches if num_steps is None else num_steps
        self.share = 1.0
        """The share of the last global batch that this worker has, from 0 to 1. It is the weight of its gradients."""
        self.is_over = False
        """Whether the last batch that was returned has ended an epoch."""
        self.num_epochs = 0
        """The number of epochs that have ended in this pass."""
        self.num_in_epoch = 0
        """The number of batches that were returned since the last of these ends."""
        self.num_given = 0
        self.num_samples = 0
        """The number of this worker's samples in the batches that were returned."""
        self.last_size = 0
        """The number of samples in the last batch; 0 if another worker has them, too."""
        self.wait_s = 0.0
        """The time spent waiting for batches, in seconds."""

    def __len__(self) -> int:
        if self._num_batches is None:
            raise TypeError("the number of batches is not known: give the lengths of the shards")
        return self._num_batches

    def __next__(self) -> Any:
        if self.is_over if self._num_steps is None else self.num_given == self._num_steps:
            raise StopIteration
        began_at = time.perf_counter()
        draw, batch = next(self._drawn)
        self.wait_s += time.perf_counter() - began_at
        self.is_over = draw.is_epoch_end
        self.last_size = 0 if draw.is_filler else len(draw.indices)
        self.share = self.last_size / draw.num_global
        self.num_given += 1
        self.num_in_epoch = 0 if self.is_over else self.num_in_epoch + 1
        self.num_epochs += self.is_over
        self.num_samples += self.last_size
        return batch
