"""Stores tensors that are spread over ranks in a checkpoint. Any number of other ranks can read them.

`torch.distributed.checkpoint` plans which rank writes which part, and which parts a rank reads. Its own files are not
used, since their metadata is a pickle. Here each rank writes one file of `torch.save()` that loads with
`weights_only=True`, and the chief writes an index in JSON. `take_out()` removes these tensors from a state, whose rest
is stored as any other state is; a `ShardPlanner` says which parts a rank writes; `put_back()` puts them back.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem, SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.futures import Future

from core_sdk.distributed import Channel
from core_sdk.errors import CheckpointTooNewError
from core_sdk.loop.restoring import unwrapped

INDEX_NAME = "sharded_tensors.json"
INDEX_VERSION = 1

Place = tuple[str | int, ...]
"""The place of a value in a state: the keys and positions that lead to it."""


class _Part(msgspec.Struct, frozen=True):
    """A part of a tensor, in the file of one rank."""

    rank: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class _Entry(msgspec.Struct, frozen=True):
    place: Place
    dtype: str
    size: tuple[int, ...]
    parts: tuple[_Part, ...]


class _Index(msgspec.Struct, frozen=True):
    version: int
    tensors: tuple[_Entry, ...]


def take_out(state: Any) -> tuple[Any, dict[Place, DTensor]]:
    """Returns the state with None in place of each tensor that is spread over ranks, and these tensors."""
    taken: dict[Place, DTensor] = {}

    def take(place: Place, value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        taken[place] = value
        return None

    return _mapped(state, take), taken


class Parts(NamedTuple):
    """The parts of tensors that one rank writes."""

    tensors: dict[tuple[str, tuple[int, ...]], torch.Tensor]
    """The parts by the name of the whole tensor and the offsets of the part."""
    encoded_index: bytes | None
    """The index of all ranks' parts, on the chief."""

    def write(self, directory: Path) -> None:
        """Writes them into a file of the directory; the chief also writes the index."""
        own = {key: _on_its_own(part) for key, part in self.tensors.items()}
        torch.save(own, directory / _file_name(dist.get_rank()))
        if self.encoded_index is not None:
            (directory / INDEX_NAME).write_bytes(self.encoded_index)


@dataclass(frozen=True)
class _Plan:
    """The parts that this rank writes, and on the chief the index of all parts."""

    structure: object
    """The structure of the tensors. The plan holds for other tensors with the same one."""
    items: Sequence[WriteItem]
    index: bytes | None


class ShardPlanner:
    """Decides which parts each rank writes. The ranks plan together only when the tensors' structure has changed."""

    def __init__(self) -> None:
        self._plan: _Plan | None = None

    def own_parts(self, tensors: Mapping[Place, DTensor], channel: Channel) -> Parts:
        """Returns the parts that this rank writes. Collective over `channel`, by which ranks agree whether to plan.

        To plan is also collective over torch's process group.
        """
        structure = [(place, t.dtype, t.shape, t.placements, t.device_mesh) for place, t in tensors.items()]
        named = {_name(place): tensor for place, tensor in tensors.items()}
        plan = self._plan
        is_known = plan is not None and plan.structure == structure
        if plan is None or not all(channel.allgather(is_known)):
            recorder = _PlanRecorder()
            save(named, storage_writer=recorder, planner=_planner())
            plan = self._plan = _Plan(structure, recorder.items, recorder.index)
        planner = _planner()
        planner.set_up_planner(named)
        own = {_key(item.index): cast(torch.Tensor, planner.resolve_data(item)) for item in plan.items}
        return Parts(own, plan.index)


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
    index = msgspec.json.decode((directory / INDEX_NAME).read_bytes(), type=_Index)
    if index.version > INDEX_VERSION:
        raise CheckpointTooNewError(directory.name, index.version, INDEX_VERSION)
    entries = [entry for entry in index.tensors if entry.place[: len(within)] == within]
    tensors = {entry.place: _empty(entry, present) for entry in entries}
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner({_name(place): tensor for place, tensor in tensors.items()}, _metadata(index))
    _fill(planner, index, directory)
    return tensors


def _empty(entry: _Entry, present: Any) -> torch.Tensor:
    size, dtype = torch.Size(entry.size), _dtype(entry.dtype)
    target = _tensor_at(present, entry.place, size)
    if isinstance(target, DTensor):
        return torch.empty_like(target, dtype=dtype, requires_grad=False)
    return torch.empty(size, dtype=dtype)


def _fill(planner: DefaultLoadPlanner, index: _Index, directory: Path) -> None:
    ranks = {(_name(entry.place), part.offsets): part.rank for entry in index.tensors for part in entry.parts}
    plan: LoadPlan = planner.create_local_plan()

    def rank_of(item: ReadItem) -> int:
        return ranks[_key(item.storage_index)]

    for rank, items in itertools.groupby(sorted(plan.items, key=rank_of), key=rank_of):
        parts = torch.load(directory / _file_name(rank), map_location="cpu", mmap=True, weights_only=True)
        for item in items:
            part = parts[_key(item.storage_index)]
            for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                part = part.narrow(dim, start, length)
            planner.resolve_tensor(item).detach().copy_(part)


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


def _planner() -> DefaultSavePlanner:
    return DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)


class _PlanRecorder(StorageWriter):
    """Keeps the plan of a save, and writes nothing."""

    def __init__(self) -> None:
        self.items: Sequence[WriteItem] = ()
        self.index: bytes | None = None
        self._rank = dist.get_rank()

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self.items = plan.items
        written: Future[list[WriteResult]] = Future()
        written.set_result([WriteResult(item.index, 0, self._rank) for item in plan.items])
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        ranks = {_key(result.index): result.storage_data for result in itertools.chain.from_iterable(results)}
        self.index = msgspec.json.encode(_Index(INDEX_VERSION, tuple(_entries(metadata, ranks))))

    def reset(self, checkpoint_id: Any = None) -> None:
        pass

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def _entries(metadata: Metadata, ranks: Mapping[tuple[str, tuple[int, ...]], int]) -> Iterator[_Entry]:
    tensors = cast(dict[str, TensorStorageMetadata], metadata.state_dict_metadata)
    for name, tensor in tensors.items():
        chunks = ((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in tensor.chunks)
        parts = tuple(_Part(ranks[name, offsets], offsets, sizes) for offsets, sizes in chunks)
        dtype = str(tensor.properties.dtype).removeprefix("torch.")
        yield _Entry(msgspec.json.decode(name, type=Place), dtype, tuple(tensor.size), parts)


def _metadata(index: _Index) -> Metadata:
    return Metadata(
        {
            _name(entry.place): TensorStorageMetadata(
                TensorProperties(dtype=_dtype(entry.dtype)),
                torch.Size(entry.size),
                [ChunkStorageMetadata(torch.Size(part.offsets), torch.Size(part.sizes)) for part in entry.parts],
            )
            for entry in index.tensors
        }
    )


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


def _key(index: MetadataIndex) -> tuple[str, tuple[int, ...]]:
    return index.fqn, tuple(index.offset or ())


def _file_name(rank: int) -> str:
    return f"sharded_tensors.{rank}.pt"
