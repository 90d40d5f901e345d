"""Plain values: those that `torch.load(weights_only=True)` loads, so that loading them cannot run foreign code."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any

import torch

from core_sdk.errors import ForeignValueError

_SCALARS = {
    type(None), bool, int, float, complex, str, bytes, bytearray,
    torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device, torch.layout,
}  # fmt: skip
_SEQUENCES = {list, tuple, set}
_MAPPINGS = {dict, OrderedDict, Counter}


def check_plain(value: Any, place: str) -> None:
    """Raises `ForeignValueError` for the first value that is not plain, with its place. `place` is that of `value`."""
    if (foreign := _find_foreign(value)) is not None:
        inner_place, found = foreign
        raise ForeignValueError(place + inner_place, found)


def holds_sharded_tensors(value: Any) -> bool:
    """Whether a tensor in the value is spread over ranks, so that each rank has only a part of it."""
    module = sys.modules.get("torch.distributed.tensor")  # slow to import; loaded already if it is in use
    return module is not None and _holds(value, module.DTensor)


def _holds(value: Any, kind: type[Any]) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, kind) or any(_holds(item, kind) for item in items)


def _find_foreign(value: Any) -> tuple[str, Any] | None:
    """Returns the place of the first value within `value` that is not plain, such as `["lr"][0]`, and that value."""
    # The exact type, since subclasses are not loaded, such as numpy.float64, a subclass of float.
    kind = type(value)
    items: Iterable[tuple[Any, Any]]
    if kind in _SCALARS:
        return None
    if kind in _SEQUENCES:
        items = enumerate(value)
    elif kind in _MAPPINGS:
        items = value.items()
    else:
        # torch would load a DTensor, but this rank holds only its own part of it.
        is_split = hasattr(value, "device_mesh")
        return None if kind in torch.serialization.get_safe_globals() and not is_split else ("", value)
    for key, item in items:
        if _find_foreign(key) is not None:
            return f"'s key {key!r}", key
        if (foreign := _find_foreign(item)) is not None:
            return f"[{key!r}]{foreign[0]}", foreign[1]
    return None
