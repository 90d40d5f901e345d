"""An order of samples that are drawn by weight."""

from __future__ import annotations

import math

import torch

from core_sdk.loop._orders._order import Order
from core_sdk.loop._rng import key, uniform


class Weighted(Order):
    """A random order in which the probability of a sample is proportional to its weight.

    With replacement, each position is an independent draw. Without, no sample is drawn twice in an epoch; then the
    draws of a whole epoch are held in memory.
    """

    def __init__(self, weights: torch.Tensor, num_positions: int, seed: int, *, replacement: bool = True) -> None:
        """Raises `ValueError` for weights by which samples cannot be drawn."""
        self._sums = weights.double().cumsum(0)
        if not (float(weights.min()) >= 0 and 0 < float(self._sums[-1]) < math.inf):
            raise ValueError("weights must be finite numbers of 0 or more, and one of them must be above 0")
        if not replacement and num_positions > (possible := int(weights.count_nonzero())):
            raise ValueError(
                f"cannot draw {num_positions} samples without replacement, because only {possible} have a weight "
                f"above 0: draw at most {possible}, or with replacement"
            )
        # The last sample with a weight. A product that is rounded up to the sum of all weights would give the next
        # index.
        self._last_index = int(torch.searchsorted(self._sums, self._sums[-1]))
        self._weights = None if replacement else weights.double()
        self._num_positions = num_positions
        self._seed = seed
        self._drawn: tuple[int, torch.Tensor] = -1, torch.empty(0, dtype=torch.int64)
        """The last epoch and its draws, if they are without replacement."""

    def __len__(self) -> int:
        return self._num_positions

    def indices(self, epoch: int, positions: torch.Tensor) -> list[int]:
        if self._weights is not None:
            if self._drawn[0] != epoch:
                self._drawn = epoch, self._drawn_without_replacement(self._weights, epoch)
            return self._drawn[1][positions].tolist()
        drawn = uniform(self._key(epoch), positions) * self._sums[-1]
        return torch.searchsorted(self._sums, drawn, right=True).clamp(max=self._last_index).tolist()

    def _drawn_without_replacement(self, weights: torch.Tensor, epoch: int) -> torch.Tensor:
        """Draws by exponentially distributed random times, whose rates are the weights, and sorts the samples by them.

        Efraimidis and Spirakis 2006, https://doi.org/10.1016/j.ipl.2005.11.003.
        """
        lifetimes = -(1 - uniform(self._key(epoch), torch.arange(len(weights)))).log() / weights
        return lifetimes.nan_to_num(nan=torch.inf).argsort(stable=True)[: self._num_positions]

    def _key(self, epoch: int) -> int:
        return key(self._seed, "weights", epoch)
