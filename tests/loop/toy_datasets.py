"""Datasets for the tests of loaders; workers that are spawned import them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Drawn = tuple[int, float, float, float]


class Augmented(Dataset[Drawn]):
    """Each sample has its index, and a number of each generator, as an augmentation draws it."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Drawn:
        return index, random.random(), float(np.random.normal()), float(torch.rand(()))


class RarelyAugmented(Augmented):
    """Only some samples draw random numbers, each from another generator."""

    def __getitem__(self, index: int) -> Drawn:
        return (
            index,
            random.random() if index == 3 else 0.0,
            float(np.random.normal()) if index == 7 else 0.0,
            float(torch.rand(())) if index == 11 else 0.0,
        )


class LateAugmented(Augmented):
    """Every sample draws from torch's generator, and only the last ones from NumPy's and Python's generators."""

    def __getitem__(self, index: int) -> Drawn:
        late = self._size - index
        drawn = (
            float(torch.rand(())),
            float(np.random.normal()) if late < 8 else 0.0,
            random.random() if late < 3 else 0.0,
        )
        return index, *drawn


class FailingAtRandom(Dataset[int]):
    """Torch's generator is drawn from by each sample, and Python's by one, which it fails with the number it drew."""

    def __init__(self, size: int, failing: int) -> None:
        self._size = size
        self._failing = failing

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        torch.rand(())
        if index == self._failing:
            raise ValueError(random.random())
        return index


class AugmentedAtOnce(Augmented):
    """Like Augmented, with one call for all samples of a batch."""

    def __getitems__(self, indices: list[int]) -> list[Drawn]:
        return [self[index] for index in indices]


class Failing(Dataset[int]):
    """Raises an exception for one sample."""

    def __init__(self, size: int, failing: int, error: type[BaseException] = ZeroDivisionError) -> None:
        self._size = size
        self._failing = failing
        self._error = error

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        if index == self._failing:
            raise self._error("a broken sample")
        return index


class Lethal(Failing):
    """Kills the process that fetches a certain sample, or keeps it for some seconds."""

    def __init__(self, size: int, lethal: int, *, kills: bool) -> None:
        super().__init__(size, -1)
        self._lethal = lethal
        self._kills = kills

    def __getitem__(self, index: int) -> int:
        if index == self._lethal:
            os.kill(os.getpid(), signal.SIGKILL) if self._kills else time.sleep(3)
        return index


class Described(Dataset[str]):
    """Samples say what is known of the worker that fetched them."""

    started = ""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> str:
        info = get_worker_info()
        return f"{type(info.dataset).__name__} {self.started}" if info else "no worker"


class Counting(IterableDataset[int]):
    """Numbers from 0 on, by default with a shuffle within each three; it can go on where it was."""

    def __init__(self, size: int, shuffles: bool = True) -> None:
        self._size = size
        self._shuffles = shuffles
        self._next = 0
        self._ahead: list[int] = []

    def __iter__(self) -> Iterator[int]:
        while self._next < self._size or self._ahead:
            if not self._ahead:
                self._ahead = list(range(self._next, min(self._next + 3, self._size)))
                self._next += len(self._ahead)
            yield self._ahead.pop(random.randrange(len(self._ahead)) if self._shuffles else 0)
        self._next = 0

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next, "ahead": [*self._ahead]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next, self._ahead = state["next"], [*state["ahead"]]


class Drifting(Counting):
    """Numbers with a random part whose generator is part of the state."""

    def __init__(self, size: int) -> None:
        super().__init__(size, shuffles=False)
        self._generator = random.Random(1)

    def __iter__(self) -> Iterator[int]:
        return (number + 100 * self._generator.randrange(100) for number in super().__iter__())

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "generator": self._generator.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._generator.setstate(state["generator"])


class Forgetful(IterableDataset[int]):
    """Numbers from 0 on that always start from the beginning."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._size))
