"""Digests of tensors, arrays, generators and plain values."""

from __future__ import annotations

import itertools
import random
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Set
from typing import Any

import google_crc32c

_MAX_BYTES = 2**16
"""Of larger tensors, blocks of this size in all are digested, at even distances."""
_NUM_BLOCKS = 16
_MAX_LENGTH = 1000
"""Of longer containers, the length and this number of first and last values are digested."""


def digest(value: Any) -> str:
    """Returns a CRC-32C of tensors, arrays and plain values, which may be nested."""
    crc = 0
    for content in _contents(value):
        crc = google_crc32c.extend(crc, content)
    return f"{crc:08x}"


def digests(values: Iterable[Any]) -> str:
    """Returns the digest of each value, with spaces between them."""
    return " ".join(map(digest, values))


def state_of_generator(value: Any) -> Any:
    """Returns the state of a random generator of Python, NumPy or torch; None of anything else."""
    if isinstance(value, random.Random):
        return repr(value.getstate())
    if (numpy := sys.modules.get("numpy")) is not None:
        if isinstance(value, numpy.random.Generator):
            return value.bit_generator.state
        if isinstance(value, numpy.random.RandomState):
            return value.get_state()
    if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Generator):
        return value.get_state()
    return None


def global_generators() -> dict[str, str]:
    """Returns digests of the global generators of the modules that this process has imported."""
    states: dict[str, Any] = {"Python's generator": repr(random.getstate())}
    if (numpy := sys.modules.get("numpy")) is not None:
        states["NumPy's generator"] = numpy.random.get_state()
    if (torch := sys.modules.get("torch")) is not None:
        states["torch's generator"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["CUDA's generator"] = torch.cuda.get_rng_state_all()
    return {name: digest(state) for name, state in states.items()}


def is_tensor(value: Any) -> bool:
    return (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor)


def _contents(value: Any) -> Iterable[bytes]:
    if is_tensor(value):
        yield from _contents_of_tensor(value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key).encode()
            yield from _contents(each)
    elif isinstance(value, list | tuple | deque):
        yield str(len(value)).encode()
        for each in value if len(value) <= 2 * _MAX_LENGTH else _ends(value):
            yield from _contents(each)
    elif isinstance(value, Set):
        yield from _contents(sorted(map(repr, value)))
    elif isinstance(value, bool | int | float | complex | str | bytes | None):
        yield repr(value).encode()
    elif (state := state_of_generator(value)) is not None:
        yield from _contents(state)
    elif hasattr(value, "tobytes"):
        yield value.tobytes()
    else:
        yield type(value).__qualname__.encode()


def _ends(values: Any) -> Iterable[Any]:
    return itertools.chain(
        itertools.islice(values, _MAX_LENGTH), itertools.islice(values, len(values) - _MAX_LENGTH, None)
    )


def _contents_of_tensor(tensor: Any) -> Iterable[bytes]:
    import torch

    yield f"{tuple(tensor.shape)} {tensor.dtype}".encode()
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    if local.layout != torch.strided or local.is_meta or not local.numel():
        return
    flat = local.detach().reshape(-1)
    if flat.nbytes > _MAX_BYTES:
        in_block = max(1, _MAX_BYTES // _NUM_BLOCKS // flat.itemsize)
        distance = flat.numel() // _NUM_BLOCKS
        flat = flat[: distance * _NUM_BLOCKS].view(_NUM_BLOCKS, distance)[:, :in_block].reshape(-1)
    yield flat.resolve_conj().resolve_neg().cpu().contiguous().view(torch.uint8).numpy().tobytes()
