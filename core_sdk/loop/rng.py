"""Random numbers that do not depend on what has happened before, and the state of the global generators.

The generators of Python, NumPy and torch belong to the training. What the loop itself chooses at random is a function
of a key, such as (seed, epoch, position). The function is our own, so that no version of a library changes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import random
import sys
from collections.abc import Iterator
from typing import Any, Protocol

import torch

_MASK = (1 << 64) - 1
# The constants of SplitMix64, Steele, Lea and Flood 2014, https://doi.org/10.1145/2714064.2660195.
_GAMMA = 0x9E3779B97F4A7C15
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SHIFTS = 30, 27, 31

# 624 words of 32 bits, and the position in them: the state of a Mersenne Twister in NumPy's memory.
_TWISTER_BYTES = 625 * 4


def key(*parts: int | str) -> int:
    """A number of 64 bits that depends on all parts and on their order, the same on every machine and for ever."""
    mixed = 0
    for part in parts:
        number = int.from_bytes(part.encode()) if isinstance(part, str) else part
        while not -_MASK - 1 <= number <= _MASK:
            mixed, number = _mix(mixed ^ (number & _MASK)), number >> 64
        mixed = _mix(mixed ^ (number & _MASK))
    return mixed


def key_of(start: int, part: int) -> int:
    """`key(…, part)`, where `start` is `key(…)` and `part` a number of 64 bits."""
    return _mix(start ^ part)


def keys(start: int, parts: torch.Tensor) -> torch.Tensor:
    """`key_of(start, part)` for each of `parts`; both parts and keys as int64."""
    mixed = (parts ^ _signed(start)) + _signed(_GAMMA)
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        mixed = (mixed ^ _shifted(mixed, shift)) * _signed(factor)
    return mixed ^ _shifted(mixed, _SHIFTS[-1])


def uniform(start: int, parts: torch.Tensor) -> torch.Tensor:
    """A number of [0, 1) for each of `parts`, by `keys`."""
    return _shifted(keys(start, parts), 11).double() * 2.0**-53


def seed_all(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch, also on accelerators."""
    seed_cpu(seed)
    torch.manual_seed(seed & _MASK)


def seed_cpu(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch on the CPU; quicker than `seed_all`."""
    random.seed(seed)
    if numpy_random := _numpy_random():
        numpy_random.seed(seed & 0xFFFFFFFF)  # an array of all 64 bits would take five times as long
    torch.default_generator.manual_seed(seed & _MASK)


def capture() -> dict[str, Any]:
    """The state of the generators of Python, NumPy, torch and the current CUDA device.

    It consists of tuples, numbers, strings and tensors, which `torch.load(weights_only=True)` reads.
    """
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if numpy_random := _numpy_random():
        name, words, *rest = numpy_random.get_state()
        state["numpy"] = (name, torch.tensor(words.tolist()), *rest)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """Continue with a state of `capture`. What this process has not is left out."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state and (numpy_random := _numpy_random()):
        name, words, *rest = state["numpy"]
        numpy_random.set_state((name, words.tolist(), *rest))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextlib.contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """Give a block generators that are seeded by `parts`, and put the state before it back afterwards."""
    with kept():
        seed = key(*parts)
        seed_cpu(seed)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed(seed)
        yield


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put the generators, also that of the current CUDA device, back after a block that seeds them or draws."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    try:
        with cpu_kept():
            yield
    finally:
        if cuda is not None:
            torch.cuda.set_rng_state(cuda)


@contextlib.contextmanager
def cpu_kept() -> Iterator[None]:
    """Put the generators of the CPU back after a block that seeds them or draws from them."""
    state = CPUState()
    try:
        yield
    finally:
        state.restore()


class CPUState:
    """The state of the generators of Python, NumPy and torch on the CPU, for this process only."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._torch = torch.default_generator.get_state()
        self._numpy = _numpy_state()

    def is_current(self) -> bool:
        """Whether nothing has been drawn or seeded since."""
        return (
            (self._numpy is None or self._numpy.is_current())
            and torch.equal(self._torch, torch.default_generator.get_state())
            and self._python == random.getstate()
        )

    def restore(self) -> None:
        random.setstate(self._python)
        torch.default_generator.set_state(self._torch)
        if self._numpy is not None:
            self._numpy.restore()


class _NumpyState(Protocol):
    """The state of NumPy's global generator."""

    def is_current(self) -> bool: ...

    def restore(self) -> None: ...


class _AnyNumpyState:
    """As NumPy gives it, which takes a fifth of a millisecond."""

    def __init__(self, numpy_random: Any) -> None:
        self._numpy_random = numpy_random
        self._state = numpy_random.get_state()

    def is_current(self) -> bool:
        name, words, *rest = self._state
        now_name, now_words, *now_rest = self._numpy_random.get_state()
        return name == now_name and rest == now_rest and bool((words == now_words).all())

    def restore(self) -> None:
        self._numpy_random.set_state(self._state)


class _TwisterState:
    """A copy of the memory of NumPy's Mersenne Twister, where no second normal number of a pair waits to be drawn."""

    def __init__(self, numpy_random: Any, twister: Any, memory: Any) -> None:
        self._numpy_random = numpy_random
        self._twister = twister
        self._memory = memory
        self._words = memory.raw

    def is_current(self) -> bool:
        return self._numpy_random.get_bit_generator() is self._twister and self._memory.raw == self._words

    def restore(self) -> None:
        if not self.is_current():
            self._numpy_random.set_bit_generator(self._twister)  # forgets the second number of a pair
            self._memory.raw = self._words


def _numpy_state() -> _NumpyState | None:
    """Leaves the generator as it is. None without NumPy."""
    if (numpy_random := _numpy_random()) is None:
        return None
    if not hasattr(numpy_random, "get_bit_generator"):  # before NumPy 1.24
        return _AnyNumpyState(numpy_random)
    twister = numpy_random.get_bit_generator()
    if (memory := _memory_of(twister)) is None:
        return _AnyNumpyState(numpy_random)
    state = _TwisterState(numpy_random, twister, memory)
    # Normal numbers come in pairs. If the second one waits, it is given without a step of the twister.
    waiting = numpy_random.standard_normal()
    if not state.is_current():
        state.restore()
        return state
    numpy_random.set_state((*numpy_random.get_state()[:3], 1, waiting))
    return _AnyNumpyState(numpy_random)


@functools.lru_cache(maxsize=1)
def _memory_of(bit_generator: Any) -> Any:
    """The memory that holds a Mersenne Twister's state; None for another generator, or where that is not known."""
    if type(bit_generator).__name__ != "MT19937":
        return None
    memory = (ctypes.c_char * _TWISTER_BYTES).from_address(bit_generator.ctypes.state_address)
    state = bit_generator.state["state"]
    expected = state["key"].tobytes() + int(state["pos"]).to_bytes(4, sys.byteorder)
    return memory if memory.raw == expected else None


@functools.cache
def _numpy_random() -> Any:
    """The module `numpy.random`, which datasets may import as late as they draw; None without NumPy."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy.random


def _mix(number: int) -> int:
    number = (number + _GAMMA) & _MASK
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        number = (number ^ number >> shift) * factor & _MASK
    return number ^ number >> _SHIFTS[-1]


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifted to the right as 64 bits without a sign."""
    return (numbers >> bits) & ((1 << 64 - bits) - 1)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
