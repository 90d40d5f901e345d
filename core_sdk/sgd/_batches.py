"""The batches of one pass over the data, as this worker sees them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core_sdk.loop.plan import Draw


@dataclass
class Share:
    """How much of the current global batch this worker has, from 0 to 1. Its gradients weigh so much."""

    current: float = 1.0


class Batches(Iterator[Any]):
    """Iterates once. Its length is the number of batches."""

    def __init__(self, drawn: Iterator[tuple[Draw, Any]], num_batches: int, share: Share) -> None:
        """`drawn` may go on after this pass."""
        self._drawn = drawn
        self._num_batches = num_batches
        self._share = share
        self.is_over = False
        """Whether the last batch has been given."""
        self.num_given = 0
        self.num_samples = 0
        """Of this worker, in the batches that were given."""
        self.last_size = 0
        """The samples of the last batch; 0 if another worker has them, too."""
        self.wait_s = 0.0
        """How long batches have been waited for."""

    def __len__(self) -> int:
        return self._num_batches

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
    """Iterates once over the worker's own samples. Its length is the number of batches."""

    def __init__(self, drawn: Iterator[tuple[Draw, Any]], num_batches: int) -> None:
        self._drawn = ((draw, batch) for draw, batch in drawn if not draw.is_filler)
        self._num_batches = num_batches
        self._first = next(self._drawn, None)
        self.num_samples = 0
        self.last_size = 0

    @property
    def is_empty(self) -> bool:
        """Whether there are fewer samples than workers, and none for this one."""
        return self._first is None and self.num_samples == 0

    def __len__(self) -> int:
        return self._num_batches

    def __next__(self) -> Any:
        draw, batch = self._first or next(self._drawn)
        self._first = None
        self.last_size = len(draw.indices)
        self.num_samples += self.last_size
        return batch
