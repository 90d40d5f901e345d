"""Tells by what data are known, which a checkpoint keeps so that a resume can say if they have changed.

Nothing is asked of a dataset that may be slow, or draw random numbers: no sample is fetched from a class of the user's.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import torch
from torch.utils.data import ConcatDataset, IterableDataset, StackDataset, Subset, TensorDataset

from core_sdk.loop._sharded_dataset import ShardedDataset

DataIdentity: TypeAlias = dict[str, Any]

_LABELS = {
    "type": "the type",
    "length": "the length",
    "fingerprint": "the library's own fingerprint",
    "files": "the checksum of the files' names and sizes",
    "samples": "the checksum of some samples",
}
_NUM_SAMPLES = 16
_NUM_VALUES = 1024
"""The number of those values, characters or bytes of a sample that count."""
_NUM_FILES = 1000
_DEPTH = 4


def data_identity(dataset: Any) -> DataIdentity:
    """Returns what can be known of a dataset at no cost, as plain values. All ranks with the same data have the same.

    Its type and its length; the fingerprint that Hugging Face's datasets have; the sizes of a sharded dataset's files;
    and a checksum of a few samples that lie in memory.
    """
    parts = [*_parts(dataset)]
    found = {
        "type": " of ".join(type(part).__qualname__ for part in parts[:_DEPTH]),
        "length": _length(dataset),
        "fingerprint": ", ".join(filter(None, map(_fingerprint, parts))) or None,
        "files": _checksum(files) if (files := [file for part in parts for file in _files(part)]) else None,
        "samples": _checksum(held) if (held := [each for part in parts for each in _in_memory(part)]) else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns how the data differ, in words. What only one of them has is not compared."""
    return [
        f"{label} was {before[name]} and is {now[name]}"
        for name, label in _LABELS.items()
        if name in before and name in now and before[name] != now[name]
    ]


def _parts(dataset: Any) -> Iterator[Any]:
    """Yields the dataset and those that torch's wrappers of datasets refer to."""
    yield dataset
    if isinstance(dataset, Subset):
        yield from _parts(dataset.dataset)
    elif isinstance(dataset, ConcatDataset | StackDataset):
        datasets = dataset.datasets
        for each in datasets.values() if isinstance(datasets, dict) else datasets:
            yield from _parts(each)


def _length(dataset: Any) -> int | None:
    if isinstance(dataset, IterableDataset):
        return None  # it may have to be read for that
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):  # a dataset whose class has no length
        return None


def _fingerprint(dataset: Any) -> str | None:
    is_of_library = any(kind.__module__.partition(".")[0] == "datasets" for kind in type(dataset).__mro__)
    fingerprint = getattr(dataset, "_fingerprint", None) if is_of_library else None
    return fingerprint if isinstance(fingerprint, str) else None


def _files(dataset: Any) -> list[tuple[str, int]]:
    """Returns the names and the sizes of those shards that are files, or of some if there are very many."""
    if not isinstance(dataset, ShardedDataset):
        return []
    paths = [shard for shard in _some(dataset.shards, _NUM_FILES) if isinstance(shard, str | os.PathLike)]
    return [(Path(path).name, _size(path)) for path in paths]


def _size(path: str | os.PathLike[str]) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return -1


def _in_memory(dataset: Any) -> Sequence[Any]:
    """Returns what a dataset has in memory of its samples."""
    if isinstance(dataset, TensorDataset):
        return dataset.tensors
    if isinstance(dataset, Subset):
        return [dataset.indices]
    return [dataset] if _is_known(dataset) else []


def _is_known(values: Any) -> bool:
    """Returns whether nothing of the user's runs when an element is taken."""
    return type(values) in (torch.Tensor, list, tuple, range) or _is_array(values)


def _is_array(values: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(values) in (numpy.ndarray, numpy.memmap)


def _checksum(values: Sequence[Any]) -> str:
    hashed = hashlib.sha256()
    for value in values:
        for each in _plain(value, _DEPTH):
            hashed.update(each + b"\0")
    return hashed.hexdigest()[:16]


def _plain(value: Any, depth: int) -> Iterator[bytes]:
    """Yields what is compared of a value: of long ones a part, and of unknown classes the name."""
    if depth and (type(value) is torch.Tensor or _is_array(value)):
        yield f"{type(value).__name__} {value.dtype} {tuple(value.shape)}".encode()
        if value.ndim and len(value):
            for row in _some(value, _NUM_SAMPLES):
                yield from _bytes(row)
        else:
            yield from _bytes(value)
    elif depth and type(value) in (list, tuple, range):
        yield f"{type(value).__name__} {len(value)}".encode()
        for each in _some(value, _NUM_SAMPLES):
            yield from _plain(each, depth - 1)
    elif depth and type(value) is dict:
        for key, each in islice(value.items(), _NUM_SAMPLES):
            yield repr(key).encode()
            yield from _plain(each, depth - 1)
    elif isinstance(value, str | bytes):
        yield repr(value[:_NUM_VALUES]).encode()
    elif isinstance(value, PurePath):
        yield value.name.encode()
    else:
        is_plain = value is None or type(value) in (bool, int, float, complex)
        yield (repr(value) if is_plain else type(value).__qualname__).encode()


def _some(values: Any, number: int) -> list[Any]:
    """Returns at most so many of the values, spread evenly, with the first and the last one."""
    last = len(values) - 1
    chosen = range(len(values)) if last < number else [index * last // (number - 1) for index in range(number)]
    return [values[index] for index in chosen]


def _bytes(row: Any) -> Iterator[bytes]:
    """Yields the first values of a tensor or an array, of those kinds that are plain memory."""
    if isinstance(row, torch.Tensor):
        if row.layout is torch.strided and row.device.type in ("cpu", "cuda") and not row.is_quantized:
            values = row.detach().reshape(-1)[:_NUM_VALUES].resolve_conj().resolve_neg()
            yield bytes(values.contiguous().view(torch.uint8).cpu().tolist())
    elif _is_array(row):
        if not row.dtype.hasobject:
            yield row.reshape(-1)[:_NUM_VALUES].tobytes()
    else:
        yield repr(row).encode()  # a number of numpy's
