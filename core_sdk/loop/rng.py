"""Random numbers that do not depend on what has happened before, and the state of the global generators.

The generators of Python, NumPy and torch belong to the training. What the loop itself chooses at random is a function
of a key, such as (seed, epoch, position). The function is our own, so that no version of a library changes it.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import functools
import random
import sys
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

_MASK = (1 << 64) - 1
# The constants of SplitMix64, Steele, Lea and Flood 2014, https://doi.org/10.1145/2714064.2660195.
_GAMMA = 0x9E3779B97F4A7C15
_FACTOR_1, _FACTOR_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SHIFT_1, _SHIFT_2, _SHIFT_3 = 30, 27, 31

# The generator behind the functions of `random`.
_PYTHON: Any = random.random.__self__  # type: ignore[attr-defined]
_seed_twister = super(random.Random, _PYTHON).seed

# 624 words of 32 bits, and the position in them: the state of a Mersenne Twister in the memory of Python or NumPy.
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
    mixed = (mixed ^ _shifted(mixed, _SHIFT_1)) * _signed(_FACTOR_1)
    mixed = (mixed ^ _shifted(mixed, _SHIFT_2)) * _signed(_FACTOR_2)
    return mixed ^ _shifted(mixed, _SHIFT_3)


def uniform(start: int, parts: torch.Tensor) -> torch.Tensor:
    """A number of [0, 1) for each of `parts`, by `keys`."""
    return _shifted(keys(start, parts), 11).double() * 2.0**-53


def seed_all(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch, also on accelerators."""
    seed_cpu(seed)
    torch.manual_seed(seed & _MASK)


def seed_cpu(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch on the CPU; quicker than `seed_all`."""
    for generator in cpu_generators():
        generator.seed(seed)


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


class GeneratorState(Protocol):
    """The state of one global generator, for this process only."""

    def is_current(self) -> bool:
        """Whether nothing has been drawn or seeded since."""

    def restore(self) -> None: ...


@dataclass(frozen=True)
class CPUGenerator:
    """A global generator on the CPU. Reading its state leaves it as it is."""

    seed: Callable[[int], object]
    state: Callable[[], GeneratorState]


@functools.cache
def cpu_generators() -> tuple[CPUGenerator, ...]:
    """Those of Python and torch, and that of NumPy where it is installed."""
    generators = CPUGenerator(_seed_python, _python_state), CPUGenerator(_seed_torch, _TorchState)
    return (*generators, CPUGenerator(_seed_numpy, _numpy_state)) if _numpy_random() else generators


class CPUState:
    """The state of the generators of Python, NumPy and torch on the CPU, for this process only."""

    def __init__(self) -> None:
        self._states = [(generator, generator.state()) for generator in cpu_generators()]

    def changed(self, ignored: Container[CPUGenerator] = ()) -> set[CPUGenerator]:
        """The generators that have drawn or were seeded since, without those that are ignored."""
        return {generator for generator, state in self._states if generator not in ignored and not state.is_current()}

    def is_current(self) -> bool:
        """Whether nothing has been drawn or seeded since."""
        return not self.changed()

    def restore(self) -> None:
        for _, state in self._states:
            state.restore()


def _seed_python(seed: int) -> None:
    """As `random.seed` does it for whole numbers, without its check of the type, which takes a microsecond."""
    _seed_twister(seed)
    _PYTHON.gauss_next = None


def _seed_torch(seed: int) -> None:
    torch.default_generator.manual_seed(seed & _MASK)


def _seed_numpy(seed: int) -> None:
    _numpy_random().seed(seed & 0xFFFFFFFF)  # an array of all 64 bits would take five times as long


class _TorchState:
    def __init__(self) -> None:
        self._state = torch.default_generator.get_state()

    def is_current(self) -> bool:
        return _bytes_of(self._state) == _bytes_of(torch.default_generator.get_state())

    def restore(self) -> None:
        torch.default_generator.set_state(self._state)


def _bytes_of(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


class _AnyPythonState:
    """As Python gives it, which takes as long as seeding several generators."""

    def __init__(self) -> None:
        self._state = random.getstate()

    def is_current(self) -> bool:
        return self._state == random.getstate()

    def restore(self) -> None:
        random.setstate(self._state)


class _PythonState:
    """A copy of the memory of Python's Mersenne Twister, and the second normal number of a pair."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self._words = memory.raw
        self._waiting = _PYTHON.gauss_next

    def is_current(self) -> bool:
        return bool(self._memory.raw == self._words and _PYTHON.gauss_next == self._waiting)

    def restore(self) -> None:
        self._memory.raw = self._words
        _PYTHON.gauss_next = self._waiting


def _python_state() -> GeneratorState:
    return _AnyPythonState() if (memory := _python_memory()) is None else _PythonState(memory)


@functools.cache
def _python_memory() -> Any:
    """The memory that holds the state of Python's generator; None where it is not known, as on another Python."""
    begin = object.__basicsize__
    if sys.implementation.name != "cpython" or random.Random.__basicsize__ < begin + _TWISTER_BYTES:
        return None
    memory = (ctypes.c_char * _TWISTER_BYTES).from_address(id(_PYTHON) + begin)
    *words, position = random.getstate()[1]
    return memory if memory.raw == array.array("I", [position, *words]).tobytes() else None


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

    def __init__(self, numpy_random: Any, twister: Any, memory: Any, words: bytes) -> None:
        self._numpy_random = numpy_random
        self._twister = twister
        self._memory = memory
        self._words = words

    def is_current(self) -> bool:
        return self._numpy_random.get_bit_generator() is self._twister and self._memory.raw == self._words

    def restore(self) -> None:
        if not self.is_current():
            self._numpy_random.set_bit_generator(self._twister)  # forgets the second number of a pair
            self._memory.raw = self._words


def _numpy_state() -> GeneratorState:
    numpy_random = _numpy_random()
    if not hasattr(numpy_random, "get_bit_generator"):  # before NumPy 1.24
        return _AnyNumpyState(numpy_random)
    twister = numpy_random.get_bit_generator()
    if (memory := _memory_of(twister)) is None:
        return _AnyNumpyState(numpy_random)
    words = memory.raw
    # Normal numbers come in pairs. If the second one waits, it is given without a step of the twister.
    waiting = numpy_random.standard_normal()
    if memory.raw != words:
        numpy_random.standard_normal()  # so that the second one of this pair does not wait
        memory.raw = words
        return _TwisterState(numpy_random, twister, memory, words)
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
    number = (number ^ number >> _SHIFT_1) * _FACTOR_1 & _MASK
    number = (number ^ number >> _SHIFT_2) * _FACTOR_2 & _MASK
    return number ^ number >> _SHIFT_3


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifted to the right as 64 bits without a sign."""
    return (numbers >> bits) & ((1 << 64 - bits) - 1)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
