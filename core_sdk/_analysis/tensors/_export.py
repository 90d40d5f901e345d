"""Writes the tensors of a checkpoint into safetensors files, under the names that `transformers` reads."""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from core_sdk._analysis.tensors._reading import StoredTensor, TensorSource, opened, unreadable
from core_sdk._ground.files import fsync_directory, fsync_tree
from core_sdk._home.storage import Storage
from core_sdk.errors import MissingDependencyError

DtypeName = Literal["fp32", "fp16", "bf16"]
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_NUM_NAMED = 5
_RESERVED = "__metadata__"
"""The key of a file of safetensors that is no tensor."""


@dataclass(frozen=True)
class Exported:
    """The result of an export into the directory `path`."""

    path: Path
    files: tuple[str, ...]
    tied: dict[str, str]
    """The tensors that were left out since they share all their memory with another one, whose name is the value."""
    left_out: tuple[str, ...]
    """The values that are no tensors."""


def export(
    storage: Storage,
    storage_id: str,
    path: Path,
    *,
    file: str | None = None,
    part: str = "",
    dtype: DtypeName | None = None,
    max_shard_bytes: int | None = None,
    with_index: bool = False,
    tensors_only: bool = False,
) -> Exported:
    """Writes a checkpoint's tensors into the new directory `path`, which appears when all are written.

    Raises `FileExistsError` if `path` exists; `CheckpointError` for a checkpoint without tensors, with tensors that
    safetensors cannot hold, or with other values, unless `tensors_only` leaves these out; and the errors of reading a
    checkpoint.
    """
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingDependencyError("safetensors", "safetensors", "`core-sdk checkpoint export`") from error
    if os.path.lexists(path):
        raise FileExistsError(17, "it exists already", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        aside.mkdir()
        with opened(storage, storage_id) as sources:
            source = _chosen(sources, storage_id, file)
            names, left_out = _selected(source, storage_id, part, tensors_only=tensors_only)
            _check_storable(source, storage_id, names, dtype)
            # The header of a file has tied names next to "format".
            tied = {one: kept for one, kept in source.tied(list(names)).items() if names[one] != "format"}
            sizes = {name: _size(source.tensors[name], dtype) for name in names if name not in tied}
            weight_map: dict[str, str] = {}
            for file_name, shard in _file_names(planned(sizes, max_shard_bytes)).items():
                header = {names[one]: names[kept] for one, kept in tied.items() if kept in shard}
                loaded = {names[name]: tensor for name, tensor in source.load(shard).items()}
                tensors = _plain(loaded, storage_id, dtype)
                save_file(tensors, aside / file_name, metadata={"format": "pt", **header})
                weight_map.update(dict.fromkeys(tensors, file_name))
        if with_index or len(set(weight_map.values())) > 1:
            index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
            (aside / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
        fsync_tree(aside)
        aside.rename(path)
        fsync_directory(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    files = tuple(sorted(one.name for one in path.iterdir()))
    return Exported(path, files, {names[one]: names[kept] for one, kept in tied.items()}, tuple(left_out))


def planned(sizes: Mapping[str, int], max_bytes: int | None) -> list[list[str]]:
    """Returns the names of each shard: in their order, as many as fit, and at least one."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, size_bytes in sizes.items():
        if max_bytes is not None and shards[-1] and size + size_bytes > max_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += size_bytes
    return shards


def _file_names(shards: Sequence[list[str]]) -> dict[str, list[str]]:
    if len(shards) == 1:
        return {"model.safetensors": shards[0]}
    return {f"model-{number:05}-of-{len(shards):05}.safetensors": shard for number, shard in enumerate(shards, 1)}


def _chosen(sources: Sequence[TensorSource], storage_id: str, file: str | None) -> TensorSource:
    holding = [source for source in sources if source.tensors or source.problem]
    found = [source for source in holding if file in (None, source.file)]
    if len(found) == 1:
        if found[0].problem is not None:
            raise found[0].problem
        return found[0]
    known = ", ".join(f"{source.file}, which cannot be read" if source.problem else source.file for source in holding)
    if not known:
        raise unreadable(storage_id, "no file of it holds tensors of torch.save(), dcp.save() or safetensors")
    if found:
        raise unreadable(storage_id, f"several files hold tensors ({known}): choose one (--file)")
    raise unreadable(storage_id, f"{file} holds no tensors; these do: {known}")


def _selected(
    source: TensorSource, storage_id: str, part: str, *, tensors_only: bool
) -> tuple[dict[str, str], list[str]]:
    """Returns the names of the chosen tensors, with those that they get, and the names of other values."""
    prefix = f"{part}." if part else ""
    names = {name: name.removeprefix(prefix) for name in source.tensors if name.startswith(prefix)}
    others = [name for name in source.others if name.startswith(prefix)]
    parts = ", ".join(dict.fromkeys(name.partition(".")[0] for name in source.tensors if "." in name))
    if not names:
        raise unreadable(storage_id, f"{source.file} has no tensors in {part!r}; it has: {parts or 'no parts'}")
    if others and not tensors_only:
        more = f" and {len(others) - _NUM_NAMED} more" if len(others) > _NUM_NAMED else ""
        raise unreadable(
            storage_id,
            f"{', '.join(others[:_NUM_NAMED])}{more} are no tensors, and safetensors keeps only these: export one part "
            f"(--part; there are {parts or 'none'}), or leave other values out (--tensors-only)",
        )
    return names, others


def _check_storable(source: TensorSource, storage_id: str, names: Mapping[str, str], dtype: DtypeName | None) -> None:
    """Raises `CheckpointError` with the names of the tensors that a file of safetensors cannot hold."""
    if twice := [stored.name for stored in source.repeated if stored.name in names]:
        raise unreadable(storage_id, f"{source.file} has several tensors with the name {twice[0]}: rename one of them")
    problems = {name: _problem(source.tensors[name], as_named, dtype) for name, as_named in names.items()}
    found = [f"{name} ({problem})" for name, problem in problems.items() if problem]
    if found:
        more = f" and {len(found) - _NUM_NAMED} more" if len(found) > _NUM_NAMED else ""
        reason = f"safetensors cannot hold {', '.join(found[:_NUM_NAMED])}{more}"
        raise unreadable(storage_id, f"{reason}: export a part without them (--part), or store them otherwise")


def _problem(tensor: StoredTensor, name: str, dtype: DtypeName | None) -> str:
    if name == _RESERVED:
        return "the name belongs to its format"
    if tensor.layout != "strided":
        return tensor.layout
    as_stored = _stored_as(getattr(torch, tensor.dtype), dtype)
    return "" if _is_storable(as_stored) else str(as_stored).removeprefix("torch.")


@functools.cache
def _is_storable(dtype: torch.dtype) -> bool:
    from safetensors.torch import save

    try:
        save({"empty": torch.empty(0, dtype=dtype)})
    except KeyError:
        return False
    return True


def _size(tensor: StoredTensor, dtype: DtypeName | None) -> int:
    return math.prod(tensor.shape) * _stored_as(getattr(torch, tensor.dtype), dtype).itemsize


def _stored_as(own: torch.dtype, chosen: DtypeName | None) -> torch.dtype:
    return own if chosen is None or not own.is_floating_point else _DTYPES[chosen]


def _plain(tensors: Mapping[str, torch.Tensor], storage_id: str, dtype: DtypeName | None) -> dict[str, torch.Tensor]:
    """Returns each tensor in memory of its own, value by value and without gaps."""
    plain: dict[str, torch.Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        try:
            one = tensor.detach().resolve_conj().resolve_neg().to(_stored_as(tensor.dtype, dtype)).contiguous()
        except RuntimeError as error:
            raise unreadable(storage_id, f"{name} ({tensor.dtype}) cannot be converted to {dtype}") from error
        memory = one.untyped_storage()
        plain[name] = one.clone() if memory.nbytes() != one.nbytes or memory.data_ptr() in taken else one
        taken.add(memory.data_ptr())
    return plain
