"""Reads which tensors a checkpoint has, and the tensors themselves, from each format in which torch stores them."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import pickle
import re
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from core_sdk._home.storage import DirectoryStorage, Storage
from core_sdk.errors import CheckpointError, MissingDependencyError
from core_sdk.loop._sharded_tensors import INDEX_NAME, put_back, whole_tensors

logger = logging.getLogger("core_sdk.tensors")

_DCP_INDEX = ".metadata"
_TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_SAFETENSORS_SUFFIX = ".safetensors"
_NUMBERED = re.compile(r"(.+)-\d{5}-of-(\d{5})\.safetensors")
_FIRST = r"\1-00001-of-\2.safetensors"
_PARTS_PREFIX = "sharded_tensors."
_QUANTIZED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a checkpoint. `file` is the one that names it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """The sizes; -1 stands for one that differs within a nested tensor."""
    file: str
    layout: str = "strided"
    """How it is stored if that is not value by value: "sparse_csr", "nested", "quantized", "meta" or a class."""


@dataclass
class TensorSource(ABC):
    """The values of one file, or of one save by `torch.distributed.checkpoint`, by their dotted names."""

    file: str
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    """The names of the values that are no tensors."""
    repeated: list[StoredTensor] = field(default_factory=list)
    """Tensors whose dotted name an earlier one has, such as the second one of `{"a.b": …, "a": {"b": …}}`."""
    problem: CheckpointError | None = None
    """Why it cannot be read, if so."""

    @abstractmethod
    def load(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Returns these tensors, on the CPU."""

    def tied(self, names: Sequence[str]) -> dict[str, str]:
        """Returns which of the tensors are stored once with an earlier one, whose name is the value."""
        return {}

    def _add(self, stored: StoredTensor) -> None:
        if self.tensors.setdefault(stored.name, stored) is not stored:
            self.repeated.append(stored)


class _TorchFile(TensorSource):
    """A file of `torch.save()`, mapped into memory, and what ranks have stored in parts next to it."""

    def __init__(self, directory: Path, file: str, storage_id: str) -> None:
        super().__init__(file)
        self._directory = directory
        content = _load_mapped(directory / file, storage_id)
        # What `loop.State` stores besides its objects belongs to the run, such as random numbers.
        is_state = isinstance(content, dict) and content.keys() >= {"format", "objects", "ranks"}
        self._content = content["objects"] if is_state else content
        self._loaded: dict[str, torch.Tensor] = {}
        split = whole_tensors(directory) if (directory / INDEX_NAME).exists() else {}
        for place, value in _leaves(self._content):
            name = _dotted(place)
            if isinstance(value, torch.Tensor):
                self._add(StoredTensor(name, _dtype_name(value.dtype), _shape(value), file, _layout(value)))
                self._loaded.setdefault(name, value)
            elif place not in split:
                self.others.append(name)
        for place, (dtype, shape) in split.items():
            self._add(StoredTensor(_dotted(place), _dtype_name(dtype), shape, file))
        self._is_split = bool(split)

    def load(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        if self._is_split and not self._loaded.keys() >= set(names):
            whole = _leaves(put_back(self._content, self._directory, {}))
            self._loaded = {_dotted(place): value for place, value in whole if isinstance(value, torch.Tensor)}
        return {name: self._loaded[name] for name in names}

    def tied(self, names: Sequence[str]) -> dict[str, str]:
        first: dict[object, str] = {}
        tied = {}
        for name, tensor in self.load(names).items():
            memory = tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride()
            signs = tensor.is_conj(), tensor.is_neg()
            if tensor.numel() and (kept := first.setdefault((memory, signs), name)) != name:
                tied[name] = kept
        return tied


class _DcpSave(TensorSource):
    """A checkpoint of `torch.distributed.checkpoint`. Only its tensors are read, since the rest would run code."""

    def __init__(self, directory: Path, storage_id: str) -> None:
        super().__init__(_DCP_INDEX)
        self._directory = directory
        self._metadata = _read_metadata(directory / _DCP_INDEX, storage_id)
        for name, stored in self._metadata.state_dict_metadata.items():
            if isinstance(stored, TensorStorageMetadata):
                dtype = stored.properties.dtype
                layout = "quantized" if dtype in _QUANTIZED else "strided"  # no other layout can be saved
                self._add(StoredTensor(name, _dtype_name(dtype), tuple(stored.size), self.file, layout))
            else:
                self.others.append(name)

    def load(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        stored = {name: self.tensors[name] for name in names}
        tensors = {name: torch.empty(one.shape, dtype=getattr(torch, one.dtype)) for name, one in stored.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a process group, dcp warns that it loads alone
            reader = _MetadataGiven(self._directory, self._metadata)
            dcp.load(tensors, storage_reader=reader, no_dist=True)  # type: ignore[attr-defined]
        return tensors


class _SafetensorsFiles(TensorSource):
    """A file of safetensors, mapped into memory, or numbered files that are one model; the first names them."""

    def __init__(self, directory: Path, file: str, names: Sequence[str], storage_id: str) -> None:
        super().__init__(file)
        try:
            import safetensors
        except ImportError as error:
            raise MissingDependencyError("safetensors", "safetensors", f"reading {file}") from error
        if (numbered := _NUMBERED.fullmatch(file)) and int(numbered[2]) != len(names):
            raise unreadable(storage_id, f"it has {len(names)} of the {int(numbered[2])} files with {file}")
        self._loaded: dict[str, torch.Tensor] = {}
        for part in names:
            try:
                with safetensors.safe_open(directory / part, framework="pt") as opened:
                    for name in opened.keys():  # noqa: SIM118 - it is no mapping
                        tensor = opened.get_tensor(name)
                        self._add(StoredTensor(name, _dtype_name(tensor.dtype), tuple(tensor.shape), part))
                        self._loaded.setdefault(name, tensor)
            except (safetensors.SafetensorError, OSError) as error:
                raise unreadable(storage_id, f"safetensors cannot read {part}: {error}") from error

    def load(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        return {name: self._loaded[name] for name in names}


class _Unreadable(TensorSource):
    """A file that may hold tensors and cannot be read, for instance since that would run code."""

    def load(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        return {}


class _MetadataGiven(FileSystemReader):
    """A reader that does not unpickle the metadata."""

    def __init__(self, directory: Path, metadata: Metadata) -> None:
        super().__init__(directory)
        self._given = metadata

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        return self._given


class _MetadataUnpickler(pickle.Unpickler):
    """Makes the objects of which the metadata of `torch.distributed.checkpoint` consists, and no others."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        elif module == "torch" and isinstance(value := getattr(torch, name, None), torch.dtype):
            return value
        elif (module, name) in _PLAIN_CLASSES:
            return super().find_class(module, name)
        elif (module, name) == ("torch.serialization", "_get_layout"):
            return {str(layout): layout for layout in (torch.strided, torch.sparse_coo, torch.sparse_csr)}.__getitem__
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into it")


_PLAIN_CLASSES = {
    ("torch", "Size"),
    ("collections", "OrderedDict"),
    *itertools.product(["pathlib", "pathlib._local"], ["PosixPath", "WindowsPath", "PurePosixPath"]),
}


def describe(storage: Storage, storage_id: str) -> list[StoredTensor]:
    """Returns the tensors of a checkpoint, in their order. Files that cannot be read are left out with a warning.

    From a directory they are not loaded, and only an index is verified. A bucket's files are fetched, except the data
    files that `torch.distributed.checkpoint` has written.
    """
    is_here = isinstance(storage, DirectoryStorage)

    def is_needed(name: str) -> bool:
        return name in (_DCP_INDEX, INDEX_NAME) or (
            not is_here and name.endswith((*_TORCH_SUFFIXES, _SAFETENSORS_SUFFIX))
        )

    with storage.open(storage_id, is_needed) as directory:
        found = sources(storage, storage_id, directory)
    tensors = [tensor for source in found for tensor in [*source.tensors.values(), *source.repeated]]
    for problem in (source.problem for source in found if source.problem is not None):
        if not tensors:
            raise problem
        logger.warning("left out: %s", problem)
    return tensors


@contextlib.contextmanager
def opened(storage: Storage, storage_id: str) -> Iterator[list[TensorSource]]:
    """Gives the sources of a checkpoint, whose files are verified."""
    with storage.open(storage_id) as directory:
        yield sources(storage, storage_id, directory)


def sources(storage: Storage, storage_id: str, directory: Path) -> list[TensorSource]:
    """Returns what may hold tensors, also files that cannot be read."""
    found: list[TensorSource] = []
    for file, source in _sources(storage.manifest(storage_id).files, storage_id, directory):
        try:
            found.append(source())
        except CheckpointError as error:
            found.append(_Unreadable(file, problem=error))
    return found


def _sources(
    names: Collection[str], storage_id: str, directory: Path
) -> Iterator[tuple[str, Callable[[], TensorSource]]]:
    for name in names:
        if name.endswith(_TORCH_SUFFIXES) and not name.startswith(_PARTS_PREFIX):
            yield name, partial(_TorchFile, directory, name, storage_id)
    whole: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(name for name in names if name.endswith(_SAFETENSORS_SUFFIX)):
        whole[_NUMBERED.sub(_FIRST, name)].append(name)
    for file, parts in whole.items():
        yield file, partial(_SafetensorsFiles, directory, file, parts, storage_id)
    if _DCP_INDEX in names:
        yield _DCP_INDEX, partial(_DcpSave, directory, storage_id)


def unreadable(storage_id: str, reason: str) -> CheckpointError:
    """Returns the error of a checkpoint that is intact, but whose tensors cannot be read or exported as asked for."""
    return CheckpointError(f"checkpoint {storage_id}: {reason}.")


def _load_mapped(path: Path, storage_id: str) -> Any:
    try:
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        reason = f"{path.name} holds more than tensors and plain values, which would run code when it is loaded"
        raise unreadable(storage_id, f"{reason}: {str(error).splitlines()[0]}") from error
    except (RuntimeError, OSError, EOFError) as error:
        raise unreadable(storage_id, f"torch cannot read {path.name}: {error}") from error


def _read_metadata(path: Path, storage_id: str) -> Metadata:
    try:
        metadata = _MetadataUnpickler(io.BytesIO(path.read_bytes())).load()
    except Exception as error:  # a pickle can fail in any way
        raise unreadable(storage_id, f"{path.name} is no index of tensors: {error}") from error
    if not isinstance(metadata, Metadata):
        raise unreadable(storage_id, f"{path.name} is no index of tensors: it holds a {type(metadata)}")
    return metadata


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*place, key))
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from _leaves(item, (*place, position))
    else:
        yield place, value


def _layout(tensor: torch.Tensor) -> str:
    if tensor.is_nested:
        return "nested"
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_meta:
        return "meta"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return type(tensor).__name__  # such as a DTensor, which is one rank's part
    return str(tensor.layout).removeprefix("torch.")


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return (tensor.size(0), *[-1] * (tensor.dim() - 1)) if tensor.is_nested else tuple(tensor.shape)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dotted(place: Sequence[Any]) -> str:
    return ".".join(map(str, place))
