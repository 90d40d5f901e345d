"""Plain values: those that `torch.load(weights_only=True)` loads, so that loading them cannot run foreign code.

Other values that trainings often keep are described by plain ones: `to_plain` turns numpy's values, deques, dates,
enums, dataclasses and named tuples into dicts with the key `$value`, and `from_plain` makes them again. A class is only
looked up among the modules that are imported already, and its `__init__` is not called.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import enum
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from core_sdk.errors import StateMismatchError

_TAG = "$value"
_SCALARS = {
    type(None), bool, int, float, complex, str, bytes, bytearray,
    torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device, torch.layout,
}  # fmt: skip
_SEQUENCES: Mapping[type, Callable[[Iterable[Any]], Any]] = {list: list, tuple: tuple}
_MAPPINGS = {dict, OrderedDict, Counter}
_FACTORIES: Mapping[str, Any] = {each.__name__: each for each in (int, float, str, list, dict, set, tuple)}
# What numpy calls booleans, integers, floats, complex numbers, texts, bytes, dates and durations.
_NUMPY_KINDS = "biufcUSMm"


def to_plain(value: Any, place: str) -> Any:
    """Returns the value with plain ones in place of all others; itself if it is plain. `place` is the value's.

    Raises `TypeError`, with its place, for the first value that cannot be described by plain ones.
    """
    kind = type(value)  # the exact type, since torch does not load subclasses
    if kind in _SCALARS:
        return value
    if kind in _MAPPINGS:
        return _mapping_to_plain(value, place)
    if kind in _SEQUENCES:
        items = [to_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
        return value if _are_same(items, value) else _SEQUENCES[kind](items)
    if kind is set and all(_is_plain_key(item) for item in value):
        return value
    # torch would load a DTensor, but this rank holds only its own part of it.
    if kind in torch.serialization.get_safe_globals() and not hasattr(value, "device_mesh"):
        return value
    for name, each in _KINDS.items():
        if each.matches(value) and (described := each.describe(value)) is not None:
            return {_TAG: name, **{key: to_plain(item, f"{place}.{key}") for key, item in described.items()}}
    raise _foreign(place, value)


def _foreign(place: str, value: object) -> TypeError:
    kind = type(value)
    if kind.__name__ == "DTensor":
        problem = "a tensor that is split over the ranks, of which one rank has only a part"
        advice = "Store such a model by torch.distributed.checkpoint, as examples/5_sharded.py does"
    else:
        problem = f"a {kind.__module__}.{kind.__qualname__}, which torch.load(weights_only=True) would not load again"
        advice = (
            "Keep numbers, strings, tensors, numpy's values, dates, enums, paths, and containers and dataclasses of "
            "them; a class must be found by its name in its module"
        )
    return TypeError(f"{place} is {problem}. {advice}.")


def from_plain(value: Any) -> Any:
    """Returns the value of which `to_plain` has made this one; itself if all of it was plain.

    Raises `StateMismatchError` for a value of a class that no imported module has.
    """
    kind = type(value)
    if kind in _MAPPINGS:
        items = [from_plain(item) for item in value.values()]
        if kind is dict and value.get(_TAG) in _KINDS:
            return _KINDS[value[_TAG]].make(dict(zip(value, items, strict=True)))
        return _with_items(value, items)
    if kind in _SEQUENCES:
        items = [from_plain(item) for item in value]
        return value if _are_same(items, value) else _SEQUENCES[kind](items)
    return value


def holds_sharded_tensors(value: Any) -> bool:
    """Returns whether a tensor in the value is spread over ranks, so that each rank has only a part of it."""
    module = sys.modules.get("torch.distributed.tensor")  # slow to import; loaded already if it is in use
    return module is not None and _holds(value, module.DTensor)


def _holds(value: Any, kind: type[Any]) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, kind) or any(_holds(item, kind) for item in items)


def _mapping_to_plain(value: dict[Any, Any], place: str) -> Any:
    if _TAG in value:
        raise _foreign(f"{place}'s key {_TAG!r}", value)
    for key in value:
        if not _is_plain_key(key):
            raise _foreign(f"{place}'s key {key!r}", key)
    items = [to_plain(item, f"{place}[{key!r}]") for key, item in value.items()]
    return _with_items(value, items)


def _with_items(value: dict[Any, Any], items: Sequence[Any]) -> dict[Any, Any]:
    """Returns a copy of a mapping with other items; the mapping itself if they are the same."""
    if _are_same(items, value.values()):
        return value
    made = copy.copy(value)  # with its attributes: torch keeps the versions of modules in one
    made.update(zip(value, items, strict=True))
    return made


def _is_plain_key(key: Any) -> bool:
    return type(key) in _SCALARS or (type(key) is tuple and all(map(_is_plain_key, key)))


def _are_same(first: Iterable[Any], second: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(first, second, strict=True))


class _Kind(NamedTuple):
    """A kind of value that torch would not load, and how plain values describe it."""

    matches: Callable[[Any], bool]
    describe: Callable[[Any], dict[str, Any] | None]
    """Returns the values of which `make` makes it again; None for a value that cannot be described."""
    make: Callable[[dict[str, Any]], Any]


def _exactly(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


def _is_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None
        and (isinstance(value, numpy.generic) or type(value) is numpy.ndarray)
        and value.dtype.kind in _NUMPY_KINDS
    )


def _describe_numpy(value: Any) -> dict[str, Any]:
    import numpy as np

    content = torch.frombuffer(bytearray(value.tobytes()), dtype=torch.uint8) if value.nbytes else torch.empty(0)
    is_scalar = isinstance(value, np.generic)
    return {"dtype": value.dtype.str, "shape": value.shape, "content": content, "is_scalar": is_scalar}


def _make_numpy(described: dict[str, Any]) -> Any:
    import numpy as np

    array = np.frombuffer(bytes(described["content"].numpy()), described["dtype"]).reshape(described["shape"])
    return array[()] if described["is_scalar"] else array.copy()


def _is_decimal(value: Any) -> bool:
    decimal = sys.modules.get("decimal")  # loaded if there is such a value
    return decimal is not None and type(value) is decimal.Decimal


def _make_decimal(text: str) -> Any:
    from decimal import Decimal  # seldom needed

    return Decimal(text)


def _describe_instant(value: Any) -> dict[str, Any] | None:
    zone = getattr(value, "tzinfo", None)
    return {"text": value.isoformat()} if zone is None or type(zone) is datetime.timezone else None


def _describe_instance(instance: Any, **values: Any) -> dict[str, Any] | None:
    """Describes an object of a class that can be found again by its name; None if it cannot."""
    kind = type(instance)
    name = f"{kind.__module__}:{kind.__qualname__}"
    return {"class": name, **values} if _find_class(name) is kind else None


def _describe_dataclass(value: Any) -> dict[str, Any] | None:
    names = [field.name for field in dataclasses.fields(value)]
    fields = vars(value) if hasattr(value, "__dict__") else {name: getattr(value, name) for name in names}
    return _describe_instance(value, fields=dict(fields))


def _make_dataclass(described: dict[str, Any]) -> Any:
    made = object.__new__(_found_class(described, dataclasses.is_dataclass))
    for name, value in described["fields"].items():
        object.__setattr__(made, name, value)  # also where it is frozen
    return made


def _make_enum(described: dict[str, Any]) -> Any:
    return _found_class(described, lambda kind: issubclass(kind, enum.Enum))(described["value"])


def _make_named_tuple(described: dict[str, Any]) -> Any:
    kind = _found_class(described, _is_named_tuple)
    return tuple.__new__(kind, described["items"])


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _found_class(described: dict[str, Any], is_fitting: Callable[[type], bool]) -> Any:
    kind = _find_class(described["class"])
    if kind is None or not is_fitting(kind):
        name = described["class"].replace(":", ".")
        raise StateMismatchError("State", [f"it has a value of the class {name}"], "Define or import this class first")
    return kind


def _find_class(name: str) -> type | None:
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def _describe_default_dict(value: Any) -> dict[str, Any] | None:
    factory = value.default_factory
    name = None if factory is None else factory.__name__ if factory in _FACTORIES.values() else ""
    return None if name == "" else {"factory": name, "items": dict(value)}


_KINDS: Mapping[str, _Kind] = {
    "numpy": _Kind(_is_numpy, _describe_numpy, _make_numpy),
    "deque": _Kind(
        _exactly(deque),
        lambda value: {"items": list(value), "maxlen": value.maxlen},
        lambda it: deque(it["items"], it["maxlen"]),
    ),
    "set": _Kind(_exactly(set), lambda value: {"items": list(value)}, lambda it: set(it["items"])),
    "frozenset": _Kind(_exactly(frozenset), lambda value: {"items": list(value)}, lambda it: frozenset(it["items"])),
    "range": _Kind(
        _exactly(range),
        lambda value: {"items": [value.start, value.stop, value.step]},
        lambda it: range(*it["items"]),
    ),
    "defaultdict": _Kind(
        _exactly(defaultdict),
        _describe_default_dict,
        lambda it: defaultdict(_FACTORIES.get(it["factory"]), it["items"]),
    ),
    "datetime": _Kind(
        _exactly(datetime.datetime), _describe_instant, lambda it: datetime.datetime.fromisoformat(it["text"])
    ),
    "date": _Kind(_exactly(datetime.date), _describe_instant, lambda it: datetime.date.fromisoformat(it["text"])),
    "time": _Kind(_exactly(datetime.time), _describe_instant, lambda it: datetime.time.fromisoformat(it["text"])),
    "timedelta": _Kind(
        _exactly(datetime.timedelta),
        lambda value: {"items": [value.days, value.seconds, value.microseconds]},
        lambda it: datetime.timedelta(*it["items"]),
    ),
    "path": _Kind(_exactly(type(Path())), lambda value: {"text": str(value)}, lambda it: Path(it["text"])),
    "decimal": _Kind(_is_decimal, lambda value: {"text": str(value)}, lambda it: _make_decimal(it["text"])),
    "enum": _Kind(
        lambda value: isinstance(value, enum.Enum),
        lambda value: _describe_instance(value, value=cast(enum.Enum, value).value),
        _make_enum,
    ),
    "dataclass": _Kind(dataclasses.is_dataclass, _describe_dataclass, _make_dataclass),
    "namedtuple": _Kind(
        lambda value: _is_named_tuple(type(value)),
        lambda value: _describe_instance(value, items=list(value)),
        _make_named_tuple,
    ),
}
