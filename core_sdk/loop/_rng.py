"""Random numbers that do not depend on earlier draws, and the state of the global generators.

The generators of Python, NumPy and torch belong to the training. The random choices of the loop itself are functions of
a key, such as (seed, epoch, position). The functions are our own, so that no version of a library changes them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import random
import struct
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

# The state of a Mersenne Twister in memory: 624 words of 32 bits, before (Python) or behind them (NumPy) the position.
_TWISTER_BYTES = 625 * 4

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def key(*parts: int | str) -> int:
    """Returns a 64-bit number that depends on all parts and their order. It is the same on every machine, forever."""
    mixed = 0
    for part in parts:
        number = int.from_bytes(part.encode()) if isinstance(part, str) else part
        while not -_MASK - 1 <= number <= _MASK:
            mixed, number = _mix(mixed ^ (number & _MASK)), number >> 64
        mixed = _mix(mixed ^ (number & _MASK))
    return mixed


def key_of(start: int, part: int) -> int:
    """Returns `key(…, part)`, where `start` is `key(…)` and `part` is a 64-bit number."""
    return _mix(start ^ part)


def keys(start: int, parts: torch.Tensor) -> torch.Tensor:
    """Returns `key_of(start, part)` for each of `parts`. Both parts and keys are int64."""
    mixed = (parts ^ _signed(start)) + _signed(_GAMMA)
    mixed = (mixed ^ _shifted(mixed, _SHIFT_1)) * _signed(_FACTOR_1)
    mixed = (mixed ^ _shifted(mixed, _SHIFT_2)) * _signed(_FACTOR_2)
    return mixed ^ _shifted(mixed, _SHIFT_3)


def uniform(start: int, parts: torch.Tensor) -> torch.Tensor:
    """Returns a number in [0, 1) for each of `parts`, computed by `keys`."""
    return _shifted(keys(start, parts), 11).double() * 2.0**-53


def seed_all(seed: int) -> None:
    """Seeds the generators of Python, NumPy and torch, also on accelerators."""
    seed_cpu(seed)
    torch.manual_seed(seed & _MASK)


def seed_cpu(seed: int) -> None:
    """Seeds the generators of Python, NumPy and torch on the CPU. Faster than `seed_all`."""
    for generator in cpu_generators():
        generator.seed(seed)


def capture() -> dict[str, Any]:
    """Returns the state of the generators of Python, NumPy, torch and all CUDA devices that this process sees.

    It consists of tuples, numbers, strings and tensors, which `torch.load(weights_only=True)` reads.
    """
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if numpy_random := _numpy_random():
        name, words, *rest = numpy_random.get_state()
        state["numpy"] = (name, torch.tensor(words.tolist()), *rest)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
        # A script may use a device without making it the current one.
        state["cuda_devices"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: dict[str, Any]) -> None:
    """Restores a state of `capture`. Ignores generators that this process does not have.

    The current CUDA device gets the state of the one that was current, whatever its number was.
    """
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state and (numpy_random := _numpy_random()):
        name, words, *rest = state["numpy"]
        numpy_random.set_state((name, words.tolist(), *rest))
    if "cuda" in state and torch.cuda.is_available():
        # Torch would apply an earlier seed later, when CUDA is first used, and after this state.
        torch.cuda.init()  # type: ignore[no-untyped-call]
        for index, of_device in enumerate(state.get("cuda_devices", [])[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(of_device, index)
        torch.cuda.set_rng_state(state["cuda"])


@contextlib.contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """Seeds the generators by `parts` for a block, and restores their state at the end of the block."""
    with kept(all_devices=False):
        seed = key(*parts)
        seed_cpu(seed)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed(seed)
        yield


@contextlib.contextmanager
def kept(*, all_devices: bool = True) -> Iterator[None]:
    """Restores the generators after a block that may seed or use them: also CUDA's, or that of the current device."""
    state = GeneratorStates(all_devices=all_devices)
    try:
        yield
    finally:
        state.restore()


class GeneratorState(Protocol):
    """The state of one global generator, for this process only."""

    def is_current(self) -> bool:
        """Returns whether nothing has been drawn or seeded since."""

    def restore(self) -> None: ...


@dataclass(frozen=True)
class CPUGenerator:
    """A global generator on the CPU. Reading its state does not change it."""

    seed: Callable[[int], object]
    state: Callable[[], GeneratorState]


@functools.cache
def cpu_generators() -> tuple[CPUGenerator, ...]:
    """Returns the generators of Python and torch, and NumPy's if it is installed."""
    generators = [
        CPUGenerator(random.seed, _python_state),
        CPUGenerator(_seed_torch, _TorchState),
    ]
    return (*generators, *([CPUGenerator(_seed_numpy, _numpy_state)] if _numpy_random() else []))


class CPUState:
    """The state of the generators of Python, NumPy and torch on the CPU, for this process only."""

    def __init__(self) -> None:
        self._states = [(generator, generator.state()) for generator in cpu_generators()]

    def changed(self, ignored: Container[CPUGenerator] = ()) -> set[CPUGenerator]:
        """Returns the generators that have drawn or were seeded since, except those in `ignored`."""
        return {generator for generator, state in self._states if generator not in ignored and not state.is_current()}

    def restore(self) -> None:
        for _, state in self._states:
            state.restore()


class GeneratorStates:
    """The state of the global generators on the CPU and on CUDA devices: on all, or the current one. As `CPUState`."""

    def __init__(self, *, all_devices: bool = True) -> None:
        self._cpu = CPUState()
        self._cuda: dict[int, torch.Tensor] = {}
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            devices = range(torch.cuda.device_count()) if all_devices else [torch.cuda.current_device()]
            self._cuda = {device: torch.cuda.get_rng_state(device) for device in devices}

    def is_current(self) -> bool:
        """Returns whether nothing has been drawn or seeded since."""
        cuda = self._cuda.items()
        return not self._cpu.changed() and all(state.equal(torch.cuda.get_rng_state(device)) for device, state in cuda)

    def restore(self) -> None:
        self._cpu.restore()
        for device, state in self._cuda.items():
            torch.cuda.set_rng_state(state, device)


def _seed_torch(seed: int) -> None:
    torch.default_generator.manual_seed(seed & _MASK)


def _seed_numpy(seed: int) -> None:
    _numpy_random().seed(seed & 0xFFFFFFFF)  # an array of all 64 bits would take five times as long


class _AnyState(GeneratorState):
    """The state of any generator, of which there are functions that read and set it."""

    def __init__(
        self, read: Callable[[], Any], set: Callable[[Any], object], comparable: Callable[[Any], object] = lambda it: it
    ) -> None:
        """`comparable` makes equal values of equal states."""
        self._read = read
        self._set = set
        self._comparable = comparable
        self._state = read()

    def is_current(self) -> bool:
        return self._comparable(self._state) == self._comparable(self._read())

    def restore(self) -> None:
        self._set(self._state)


class _TorchState(GeneratorState):
    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = torch.default_generator.get_state()

    def is_current(self) -> bool:
        own, current = self._state, torch.default_generator.get_state()
        return own.numel() == current.numel() and _memcmp(own.data_ptr(), current.data_ptr(), own.numel()) == 0

    def restore(self) -> None:
        torch.default_generator.set_state(self._state)


class _PythonState(GeneratorState):
    """The state of `random` in a known memory, which is read in a thirtieth of the time of `random.getstate()`."""

    __slots__ = ("_generator", "_memory", "_state")

    def __init__(self, generator: Any, memory: Any) -> None:
        self._generator = generator
        self._memory = memory
        self._state = memory.raw, generator.gauss_next

    def is_current(self) -> bool:
        return self._state == (self._memory.raw, self._generator.gauss_next)

    def restore(self) -> None:
        self._memory.raw, self._generator.gauss_next = self._state


class _TwisterState(GeneratorState):
    """The state of a Mersenne Twister of NumPy in a known memory that keeps no second normal number of a pair."""

    __slots__ = ("_memory", "_random", "_twister", "_words")

    def __init__(self, numpy_random: Any, twister: Any, memory: Any, words: bytes) -> None:
        self._random = numpy_random
        self._twister = twister
        self._memory = memory
        self._words = words

    def is_current(self) -> bool:
        return self._random.get_bit_generator() is self._twister and bool(self._memory.raw == self._words)

    def restore(self) -> None:
        if not self.is_current():
            self._random.set_bit_generator(self._twister)  # drops the second number of a pair
            self._memory.raw = self._words


def _python_state() -> GeneratorState:
    generator, memory = _memory_of_python()
    return _AnyState(random.getstate, random.setstate) if memory is None else _PythonState(generator, memory)


@functools.cache
def _memory_of_python() -> tuple[Any, Any]:
    """Returns the generator behind `random`, and the memory of its position and words; None if that is unknown."""
    generator: Any = random.getstate.__self__  # type: ignore[attr-defined]
    size = object.__basicsize__ + _TWISTER_BYTES
    if sys.implementation.name != "cpython" or type(generator).__basicsize__ < size:
        return generator, None
    memory = (ctypes.c_char * _TWISTER_BYTES).from_address(id(generator) + object.__basicsize__)
    *words, position = random.getstate()[1]
    return generator, memory if memory.raw == struct.pack("=625I", position, *words) else None


def _numpy_state() -> GeneratorState:
    numpy_random = _numpy_random()
    if not hasattr(numpy_random, "get_bit_generator"):  # before NumPy 1.24
        return _any_numpy_state(numpy_random)
    twister = numpy_random.get_bit_generator()
    if (memory := _memory_of(twister)) is None:
        return _any_numpy_state(numpy_random)
    words = memory.raw
    # Normal numbers are drawn in pairs. If the second one of a pair is kept, it comes without a step of the twister.
    waiting = numpy_random.standard_normal()
    if memory.raw != words:
        numpy_random.standard_normal()  # draws the second one of this pair, so that none is kept
        memory.raw = words
        return _TwisterState(numpy_random, twister, memory, words)
    numpy_random.set_state((*numpy_random.get_state()[:3], 1, waiting))
    return _any_numpy_state(numpy_random)


def _any_numpy_state(numpy_random: Any) -> GeneratorState:
    """Returns the state of any generator behind `numpy.random`. Takes 0.2 ms."""
    return _AnyState(
        numpy_random.get_state, numpy_random.set_state, lambda state: (state[1].tobytes(), state[0], *state[2:])
    )


@functools.lru_cache(maxsize=1)
def _memory_of(bit_generator: Any) -> Any:
    """Returns the memory of a Mersenne Twister's state; None for other generators, or if it is unknown."""
    if type(bit_generator).__name__ != "MT19937":
        return None
    memory = (ctypes.c_char * _TWISTER_BYTES).from_address(bit_generator.ctypes.state_address)
    state = bit_generator.state["state"]
    expected = state["key"].tobytes() + int(state["pos"]).to_bytes(4, sys.byteorder)
    return memory if memory.raw == expected else None


@functools.cache
def _numpy_random() -> Any:
    """Returns the module `numpy.random`, since a dataset may import it later; None if NumPy is not installed."""
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
    """Shifts numbers to the right as unsigned 64-bit integers."""
    return (numbers >> bits) & ((1 << 64 - bits) - 1)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
