"""Stores tensors that are spread over ranks in a checkpoint. Any number of other ranks can read them.

Each rank writes one file of `torch.save()` that loads with `weights_only=True`, and the chief writes an index in JSON.
The files of `torch.distributed.checkpoint` are not used, since their metadata is a pickle. `ShardPlanner.take_out()`
removes these tensors from a state, whose rest is stored as any other state is, and says which parts a rank writes;
`put_back()` puts them back.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from core_sdk._distributed import Channel
from core_sdk._ground.decoding import json_decoder
from core_sdk.errors import CheckpointTooNewError
from core_sdk.loop._restoring import unwrapped

INDEX_NAME = "sharded_tensors.json"
INDEX_VERSION = 1

Place = tuple[str | int, ...]
"""The place of a value in a state: the keys and positions that lead to it."""


class _Part(msgspec.Struct, frozen=True):
    """A part of a tensor, in the file of one rank."""

    rank: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class _StoredTensor(msgspec.Struct, frozen=True):
    place: Place
    dtype: str
    size: tuple[int, ...]
    parts: tuple[_Part, ...]


class _TensorIndex(msgspec.Struct, frozen=True):
    version: int
    tensors: tuple[_StoredTensor, ...]


class Parts(NamedTuple):
    """The parts of tensors that one rank writes."""

    rank: int
    tensors: dict[tuple[str, tuple[int, ...]], torch.Tensor]
    """The parts by the name of the whole tensor and the offsets of the part."""
    encoded_index: bytes | None
    """The index of all ranks' parts, on the chief."""

    def write(self, directory: Path) -> None:
        """Writes them into a file of the directory; the chief also writes the index."""
        own = {key: _on_its_own(part) for key, part in self.tensors.items()}
        torch.save(own, directory / _file_name(self.rank))
        if self.encoded_index is not None:
            (directory / INDEX_NAME).write_bytes(self.encoded_index)


class ShardPlanner:
    """Decides which parts each rank writes. The ranks plan together only when the tensors' structure has changed."""

    def __init__(self) -> None:
        self._structure: object = None
        """The structure of the tensors for which the plan was made."""
        self._entries: list[_StoredTensor] = []
        self._encoded_index = b""

    def take_out(self, state: Any, channel: Channel) -> tuple[Any, Parts]:
        """Returns the state with None in place of each tensor that is spread over ranks, and this rank's parts.

        Collective.
        """
        tensors: dict[Place, DTensor] = {}

        def take(place: Place, value: Any) -> Any:
            if not isinstance(value, DTensor):
                return value
            tensors[place] = value
            return None

        rest = _mapped(state, take)
        structure = [(place, t.dtype, t.shape, t.placements, t.device_mesh) for place, t in tensors.items()]
        if not all(channel.allgather(structure == self._structure)):
            held = [_held(place, tensor, channel.rank) for place, tensor in tensors.items()]
            self._structure, self._entries = structure, planned(channel.allgather(held))
            self._encoded_index = msgspec.json.encode(_TensorIndex(INDEX_VERSION, tuple(self._entries)))
        own = {
            (_name(entry.place), part.offsets): tensors[entry.place].to_local().detach()
            for entry in self._entries
            for part in entry.parts
            if part.rank == channel.rank
        }
        return rest, Parts(channel.rank, own, self._encoded_index if channel.rank == 0 else None)


def planned(held: Sequence[Sequence[_StoredTensor]]) -> list[_StoredTensor]:
    """Returns all tensors with each part once, given each rank's tensors with the part that it holds.

    Of the ranks that hold a part, the one with the fewest numbers so far writes it.
    """
    entries: dict[Place, _StoredTensor] = {}
    holders: defaultdict[tuple[Place, tuple[int, ...], tuple[int, ...]], list[int]] = defaultdict(list)
    for entry in itertools.chain.from_iterable(held):
        entries.setdefault(entry.place, entry)
        for part in entry.parts:
            holders[entry.place, part.offsets, part.sizes].append(part.rank)
    parts: defaultdict[Place, list[_Part]] = defaultdict(list)
    num_written = [0] * len(held)
    for (place, offsets, sizes), ranks in holders.items():
        rank = min(ranks, key=num_written.__getitem__)
        num_written[rank] += math.prod(sizes)
        parts[place].append(_Part(rank, offsets, sizes))
    return [msgspec.structs.replace(entry, parts=tuple(parts[place])) for place, entry in entries.items()]


def _held(place: Place, tensor: DTensor, rank: int) -> _StoredTensor:
    """Returns a tensor with the part that this rank holds, unless that is empty."""
    offsets, sizes = _extent(tensor)
    parts = (_Part(rank, offsets, sizes),) if math.prod(sizes) else ()
    return _StoredTensor(place, str(tensor.dtype).removeprefix("torch."), tuple(tensor.size()), parts)


def _extent(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the offsets and sizes of the part of a tensor that this rank holds."""
    if not isinstance(tensor, DTensor):
        return (0,) * tensor.ndim, tuple(tensor.size())
    (chunk,) = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]
    return tuple(chunk.offsets), tuple(chunk.sizes)


def put_back(state: Any, directory: Path, present: Any, *, within: Place = ()) -> Any:
    """Returns the state with its tensors, each spread over ranks like the tensor at its place in `present`.

    If there is no such tensor, or it is not spread, or has another size, the whole tensor is returned, on the CPU. A
    tensor of `present` in place of a dict or list stands for all tensors in it. Of the directory, only
    the tensors `within` a place are read. Not collective.
    """
    tensors = _read(directory, present, within)

    def put(place: Place, value: Any) -> Any:
        if place in tensors:
            return tensors[place]
        target = _tensor_at(present, place, value.size()) if isinstance(value, torch.Tensor) else None
        return _spread(value, target) if isinstance(target, DTensor) else value

    return _mapped(state, put)


def presence(target: Any) -> Any:
    """Returns what `put_back()` needs as `present` for an object: a module's tensors, or an optimizer's parameters."""
    if isinstance(target, torch.optim.Optimizer):
        return {"state": [parameter for group in target.param_groups for parameter in group["params"]]}
    if isinstance(target, torch.nn.Module):
        return unwrapped(target).state_dict()
    return target if isinstance(target, dict) else {}


def _tensor_at(present: Any, place: Place, size: torch.Size) -> torch.Tensor | None:
    for key in place:
        if isinstance(present, torch.Tensor):
            break
        try:
            present = present[key]
        except (LookupError, TypeError):
            return None
    return present if isinstance(present, torch.Tensor) and present.size() == size else None


def _read(directory: Path, present: Any, within: Place) -> dict[Place, torch.Tensor]:
    if not (directory / INDEX_NAME).exists():
        return {}
    index = _read_index(directory)
    # Mapped into memory, since a rank may need only some of another one's parts.
    read = functools.cache(
        lambda rank: torch.load(directory / _file_name(rank), map_location="cpu", mmap=True, weights_only=True)
    )
    tensors = {entry.place: _empty(entry, present) for entry in index.tensors if entry.place[: len(within)] == within}
    for entry in index.tensors:
        if entry.place in tensors:
            _fill(tensors[entry.place], entry, read)
    return tensors


def whole_tensors(directory: Path) -> dict[Place, tuple[torch.dtype, tuple[int, ...]]]:
    """Returns the type and size of each tensor that ranks have stored in parts, without reading it."""
    return {entry.place: (_dtype(entry.dtype), entry.size) for entry in _read_index(directory).tensors}


def _read_index(directory: Path) -> _TensorIndex:
    index = json_decoder(_TensorIndex)((directory / INDEX_NAME).read_bytes())
    if index.version > INDEX_VERSION:
        raise CheckpointTooNewError(directory.name, index.version, INDEX_VERSION)
    return index


def _empty(entry: _StoredTensor, present: Any) -> torch.Tensor:
    size, dtype = torch.Size(entry.size), _dtype(entry.dtype)
    target = _tensor_at(present, entry.place, size)
    if isinstance(target, DTensor):
        return torch.empty_like(target, dtype=dtype, requires_grad=False)
    return torch.empty(size, dtype=dtype)


def _fill(tensor: torch.Tensor, entry: _StoredTensor, read: Callable[[int], Any]) -> None:
    """Copies from all parts what belongs into this rank's part of a tensor. `read` returns a rank's parts."""
    extents = [*zip(*_extent(tensor), strict=True)]
    own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    for part in entry.parts:
        here, there = [], []
        for (offset, size), other_offset, other_size in zip(extents, part.offsets, part.sizes, strict=True):
            start, end = max(offset, other_offset), min(offset + size, other_offset + other_size)
            here.append(slice(start - offset, max(start, end) - offset))
            there.append(slice(start - other_offset, max(start, end) - other_offset))
        if own[tuple(here)].numel():
            own[tuple(here)] = read(part.rank)[_name(entry.place), part.offsets][tuple(there)]


def _spread(whole: torch.Tensor, target: DTensor) -> DTensor:
    """Returns a tensor that every rank has, spread over the ranks like `target`."""
    whole = whole.to(target.device)
    return distribute_tensor(whole, target.device_mesh, target.placements, src_data_rank=None)


def _mapped(value: Any, change: Callable[[Place, Any], Any], place: Place = ()) -> Any:
    """Returns a copy of the containers in which `change` has replaced each value, given its place."""
    if isinstance(value, dict):
        changed = copy.copy(value)  # an OrderedDict keeps the versions of its modules
        changed.update({key: _mapped(item, change, (*place, key)) for key, item in value.items()})
        return changed
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, change, (*place, position)) for position, item in enumerate(value))
    return change(place, value)


def _on_its_own(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with its own storage, since `torch.save()` writes the whole storage of a tensor."""
    return tensor.clone() if tensor.untyped_storage().nbytes() != tensor.nbytes else tensor


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{INDEX_NAME} names a type of numbers that torch has not: {name}")
    return dtype


def _name(place: Place) -> str:
    return msgspec.json.encode(place).decode()


def _file_name(rank: int) -> str:
    return f"sharded_tensors.{rank}.pt"
