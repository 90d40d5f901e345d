"""A shuffle that computes the sample at any position, and needs no memory."""

from __future__ import annotations

import math

import torch

from core_sdk.loop._orders._order import Order
from core_sdk.loop._rng import key

_NUM_ROUNDS = 8
_FACTORS = -0x61C8864680B583EB, -0x40A7B892E31B1A47


class Shuffled(Order):
    """A random order with each sample once, different in each epoch.

    With `num_positions` above the number of samples, an epoch consists of several shuffles, one after the other; below
    it, of a part of one.
    """

    def __init__(self, num_samples: int, seed: int, num_positions: int | None = None) -> None:
        self._num_samples = num_samples
        self._num_positions = num_samples if num_positions is None else num_positions
        self._seed = seed

    def __len__(self) -> int:
        return self._num_positions

    def indices(self, epoch: int, positions: torch.Tensor) -> list[int]:
        if self._num_positions <= self._num_samples:
            return self._shuffled(epoch, 0, positions).tolist()
        indices = torch.empty_like(positions)
        shuffles = positions // self._num_samples
        for shuffle in sorted(set(shuffles.tolist())):
            chosen = shuffles == shuffle
            indices[chosen] = self._shuffled(epoch, shuffle, positions[chosen] - shuffle * self._num_samples)
        return indices.tolist()

    def _shuffled(self, epoch: int, shuffle: int, positions: torch.Tensor) -> torch.Tensor:
        return shuffled(positions, self._num_samples, key(self._seed, "shuffle", epoch, shuffle))


def shuffled(numbers: torch.Tensor, size: int, keyed: int) -> torch.Tensor:
    """Maps numbers below `size` by a bijection of 0 … `size` - 1, which `keyed` chooses.

    A Feistel network shuffles the pairs (left, right) of two digits to the base ⌈√size⌉. There are slightly more pairs
    than numbers. A number that is mapped to `size` or above is mapped again until it is below, which keeps the
    bijection.
    """
    base = math.isqrt(size - 1) + 1
    rounds = [key(keyed, number) >> 1 for number in range(_NUM_ROUNDS)]
    numbers = _network(numbers, base, rounds)
    while len(outside := (numbers >= size).nonzero().squeeze(1)):
        numbers[outside] = _network(numbers[outside], base, rounds)
    return numbers


def _network(numbers: torch.Tensor, base: int, rounds: list[int]) -> torch.Tensor:
    left = numbers // base
    right = numbers - left * base
    for number in rounds:
        # A digit that depends on `right` and on the round, from 32 well mixed bits. Products wrap at 64 bits.
        mixed = (right ^ number) * _FACTORS[0]
        mixed = (mixed ^ mixed >> 29) * _FACTORS[1]
        left += (mixed >> 32 & 0xFFFFFFFF) * base >> 32
        left -= base * (left >= base)
        left, right = right, left
    return left * base + right
