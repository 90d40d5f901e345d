"""Moves batches, which are nested containers of tensors, to a device."""

from __future__ import annotations

import logging
import sys
from typing import Any

import torch

logger = logging.getLogger("core_sdk.loop")


class Mover:
    """Moves batches to a device, and warns once for each type that cannot be moved."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._warned_types: set[type] = set()

    def __call__(self, data: Any) -> Any:
        """Moves a batch as `to_device()` does."""
        if type(data) is torch.Tensor:
            return data.to(self._device, non_blocking=True)
        if type(data) in (list, tuple):
            # On the CPU nearly every batch is in the right place already, and this loop finds that out quickly.
            for value in data:
                if type(value) is not torch.Tensor or value.device != self._device:
                    break
            else:
                return data
        return to_device(data, self._device, self._warned_types)


def to_device(data: Any, device: torch.device, warned_types: set[type] | None = None) -> Any:
    """Moves a batch to a device: every object with a method `to` in dictionaries, lists and tuples.

    Arrays become tensors. Warns once for each type that cannot be moved; `warned_types` collects them.
    """
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if callable(move := getattr(data, "to", None)):
        return move(device)
    if isinstance(data, dict):
        return like(data, {key: to_device(value, device, warned_types) for key, value in data.items()})
    if isinstance(data, (list, tuple)):
        return like(data, [to_device(value, device, warned_types) for value in data])
    if is_array(data) and data.dtype.kind in "fciub":
        return torch.from_numpy(data).to(device, non_blocking=True)
    _warn_once(type(data), warned_types)
    return data


def like(original: Any, content: Any) -> Any:
    """Returns `content`, a list or dictionary, as a container of the original's type, if it can be converted."""
    kind = type(original)
    if kind is type(content):
        return content
    try:
        return kind(*content) if hasattr(original, "_fields") else kind(content)
    except TypeError:
        return content


def _warn_once(kind: type, warned_types: set[type] | None) -> None:
    if warned_types is None or kind not in warned_types:
        logger.warning("a batch holds %s, which cannot be moved to a device and stays where it is", kind.__name__)
    if warned_types is not None:
        warned_types.add(kind)


def is_array(data: Any) -> bool:
    """Returns whether it is an array of NumPy. Does not import NumPy: until it is imported, there are no arrays."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(data, numpy.ndarray)
