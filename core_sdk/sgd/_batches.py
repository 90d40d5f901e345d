"""The batches of one pass over the data, as this worker sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core_sdk.loop.plan import Draw


@dataclass
class Share:
    """The share of the current global batch that this worker has, from 0 to 1. It is the weight of its gradients."""

    current: float = 1.0


class Batches(Iterator[Any]):
    """The batches of a training pass, which can be iterated over once. The length is the number of batches."""

    def __init__(self, drawn: Iterator[tuple[Draw, Any]], num_batches: int | None, share: Share) -> None:
        """`drawn` may go on after this pass."""
        self._drawn = drawn
        self._num_batches = num_batches
        self._share = share
        self.is_over = False
        """Whether the last batch has been returned."""
        self.num_given = 0
        self.num_samples = 0
        """The number of this worker's samples in the batches that were returned."""
        self.last_size = 0
        """The number of samples in the last batch; 0 if another worker has them, too."""
        self.wait_s = 0.0
        """The time spent waiting for batches, in seconds."""

    def __len__(self) -> int:
        return _known_length(self._num_batches)

    def __next__(self) -> Any:
        if self.is_over:
            raise StopIteration
        began_at = time.perf_counter()
        draw, batch = next(self._drawn)
        self.wait_s += time.perf_counter() - began_at
        self.is_over = draw.is_epoch_end
        self.last_size = 0 if draw.is_filler else len(draw.indices)
        self._share.current = self.last_size / draw.num_global
        self.num_given += 1
        self.num_samples += self.last_size
        return batch


class ValidationBatches(Iterator[Any]):
    """The batches of the worker's own validation samples, which can be iterated over once.

    The length is the number of batches.
    """

    def __init__(self, drawn: Iterator[tuple[Draw, Any]], num_batches: int | None) -> None:
        self._drawn = ((draw, batch) for draw, batch in drawn if not draw.is_filler)
        self._num_batches = num_batches
        self._first = next(self._drawn, None)
        self.num_samples = 0
        self.last_size = 0

    @property
    def is_empty(self) -> bool:
        """Whether this worker has no samples, which happens if there are fewer samples than workers."""
        return self._first is None and self.num_samples == 0

    def __len__(self) -> int:
        return _known_length(self._num_batches)

    def __next__(self) -> Any:
        draw, batch = self._first or next(self._drawn)
        self._first = None
        self.last_size = len(draw.indices)
        self.num_samples += self.last_size
        return batch


def _known_length(num_batches: int | None) -> int:
    if num_batches is None:
        raise TypeError("the number of batches is not known yet: give the lengths of the shards")
    return num_batches
