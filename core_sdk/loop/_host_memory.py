"""Copies of a training's state in host memory, which a thread can write while the training changes the original."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class HostMemory:
    """Copies states, one after the other, into the same host memory.

    A copy is valid until the next one is made. Tensors that share memory share it in the copy, too. Memory for tensors
    of CUDA devices is pinned.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, bool], list[torch.Tensor]] = {}
        """The buffers of the last copy, by their size in bytes and whether they are pinned."""

    def copy(self, state: T) -> T:
        """Returns a copy of the state, with all tensors on the CPU. Blocks until it is complete."""
        free, self._buffers = self._buffers, defaultdict(list)
        copied: dict[int, Any] = {}
        storages: dict[tuple[torch.device, int, int], torch.UntypedStorage] = {}
        for tensor in _tensors(state):
            if id(tensor) in copied:
                continue
            if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
                copied[id(tensor)] = _alike(tensor.detach().to("cpu", copy=True), tensor)
                continue
            storage = tensor.untyped_storage()
            key = storage.device, storage.data_ptr(), storage.nbytes()
            if key not in storages:
                storages[key] = self._copied(storage, free)
            host = torch.empty(0, dtype=tensor.dtype)
            host.set_(storages[key], tensor.storage_offset(), tensor.size(), tensor.stride())
            copied[id(tensor)] = _alike(host, tensor)
        for device in {device for device, *_ in storages}:
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()
        return copy.deepcopy(state, copied)

    def _copied(
        self, storage: torch.UntypedStorage, free: dict[tuple[int, bool], list[torch.Tensor]]
    ) -> torch.UntypedStorage:
        """Returns a copy of the storage. From a CUDA device its bytes may arrive later."""
        is_pinned = storage.device.type == "cuda"
        key = storage.nbytes(), is_pinned
        left = free.get(key)
        # The oldest one, which had the same tensor the last time: going through memory in order is faster.
        buffer = left.pop(0) if left else torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=is_pinned)
        self._buffers[key].append(buffer)
        buffer.copy_(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage), non_blocking=is_pinned)
        return buffer.untyped_storage()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in nested containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(key)
            yield from _tensors(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _tensors(item)


def _alike(host: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """Returns the copy as a parameter, or as one that requires gradients, if the original is one."""
    if isinstance(original, torch.nn.Parameter):
        return torch.nn.Parameter(host, original.requires_grad)
    return host.requires_grad_(original.requires_grad)
