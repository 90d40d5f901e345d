"""Keys, and the generators of Python, NumPy and torch."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from core_sdk.loop import _rng as rng


def draw() -> tuple[float, float, float]:
    return random.gauss(), float(np.random.normal()), float(torch.randn(()))


def test_keys_depend_on_each_part_and_on_their_order() -> None:
    """Keys depend on every part and on the order of the parts."""
    parts: list[tuple[int | str, ...]] = [
        (), (0,), (0, 0), (1, 2), (2, 1), (-1,), (2**64,), (2**70 + 1,), ("shuffle", 1), ("a long name of a use", 1),
    ]  # fmt: skip

    assert len({rng.key(*each) for each in parts}) == len(parts)
    assert all(0 <= rng.key(*each) < 2**64 for each in parts)


def test_keys_are_the_same_for_ever() -> None:
    """Keys never change; the first is SplitMix64's first number."""
    assert rng.key(0) == 0xE220A8397B1DCDAF
    assert rng.key(7, "shuffle", 3) == 0xA97841D7511B7490


def test_many_keys_at_once_are_the_keys_one_by_one() -> None:
    """keys() returns the same keys as single calls."""
    parts = torch.tensor([0, 1, 5, 2**40, -3])

    keys = rng.keys(rng.key(9, "x"), parts)

    assert [each % 2**64 for each in keys.tolist()] == [rng.key(9, "x", part) for part in parts.tolist()]


def test_uniform_numbers_are_uniform() -> None:
    """Uniform numbers have the right mean, variance and range."""
    numbers = rng.uniform(rng.key(1), torch.arange(100_000))

    assert float(numbers.min()) >= 0 and float(numbers.max()) < 1
    assert abs(float(numbers.mean()) - 1 / 2) < 0.004
    assert abs(float(numbers.var()) - 1 / 12) < 0.001


def test_a_captured_state_goes_on_where_it_was() -> None:
    """A captured state continues exactly, also in the middle of a pair of normal numbers."""
    draw()
    state = rng.capture()
    expected = [draw(), draw()]

    rng.restore(state)

    assert [draw(), draw()] == expected


def test_a_captured_state_loads_without_pickled_classes() -> None:
    """A captured state loads with weights_only."""
    file = io.BytesIO()
    torch.save(rng.capture(), file)
    expected = draw()
    file.seek(0)

    rng.restore(torch.load(file, weights_only=True))

    assert draw() == expected


def test_a_seeded_block_leaves_the_generators_as_they_were() -> None:
    """A seeded block restores the generators, also if it fails."""
    rng.seed_all(3)
    expected = [draw(), draw()]
    rng.seed_all(3)
    draw()

    with rng.seeded(1, 2):
        first = draw()
    try:
        with rng.seeded(1, 2):
            second = draw()
            raise KeyError
    except KeyError:
        pass

    assert first == second
    assert draw() == expected[1]


DRAWS: list[Callable[[], object]] = [
    random.random,
    lambda: random.gauss(0.0, 1.0),
    lambda: torch.rand(()),
    np.random.random,
    np.random.normal,
    lambda: np.random.seed(0),
    lambda: np.random.random(624),
]


@pytest.mark.parametrize("num_normal", range(3))
@pytest.mark.parametrize("draw", DRAWS)
def test_a_kept_state_shows_each_draw_and_is_put_back(draw: Callable[[], object], num_normal: int) -> None:
    """CPUState notices every draw and restores the state."""
    rng.seed_all(5)
    np.random.normal(size=num_normal)
    before = rng.capture()
    state = rng.CPUState()

    assert not state.changed()
    assert same(rng.capture(), before)
    draw()
    assert state.changed()

    state.restore()

    assert not state.changed()
    assert same(rng.capture(), before)


def test_the_state_of_python_is_read_in_its_memory() -> None:
    """On CPython the memory of the generator behind `random` is known, with which its state is read and set at once."""
    random.seed(7)
    _, memory = rng._memory_of_python()
    position, *words = struct.unpack("=625I", memory.raw)

    assert random.getstate() == (3, (*words, position), None)


def test_a_twister_of_numpy_that_was_replaced_is_put_back() -> None:
    """NumPy's bit generator is restored even if it was replaced."""
    twister = np.random.mtrand.get_bit_generator()
    before = rng.capture()
    state = rng.CPUState()
    np.random.mtrand.set_bit_generator(np.random.MT19937(4))

    assert state.changed()
    state.restore()

    assert np.random.mtrand.get_bit_generator() is twister
    assert same(rng.capture(), before)


def same(left: Any, right: Any) -> bool:
    """Returns whether two states of `rng.capture()` are equal."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)
