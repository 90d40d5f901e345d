"""Finds the object that makes another one unpicklable, to name it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType

_MOST_STEPS = 8


def path_to_culprit(parts: Mapping[str, object], dumps: Callable[[object], bytes]) -> str:
    """Returns the path to the object for people, such as `argument 1, attribute 'lock'`, as far as it can be found.

    `parts` are the objects to search, by their names.
    """
    path: list[str] = []
    for _ in range(_MOST_STEPS):
        found = next(((name, value) for name, value in parts.items() if not _is_picklable(value, dumps)), None)
        if found is None:
            break
        name, value = found
        path += [name] if name else []
        parts = dict(_parts_of(value))
    return ", ".join(path)


def _is_picklable(value: object, dumps: Callable[[object], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:  # noqa: BLE001 - whatever a class of the script's raises
        return False
    return True


def _parts_of(value: object) -> Iterator[tuple[str, object]]:
    match value:
        case dict():
            yield from ((f"key {key!r}", each) for key, each in value.items())
        case list() | tuple():
            yield from ((f"element {index}", each) for index, each in enumerate(value))
        case set() | frozenset():
            yield from ((f"element {each!r}", each) for each in value)
        case FunctionType():
            yield from _parts_of_function(value)
        case _ if inspect.ismethod(value):
            yield f"its object {type(value.__self__).__name__}", value.__self__
        case _:
            yield from ((f"attribute {name!r}", each) for name, each in getattr(value, "__dict__", {}).items())


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"variable {name!r}", cell.cell_contents
    for name in _names_used(function.__code__):
        if name in function.__globals__:
            yield f"global {name!r}", function.__globals__[name]
    yield from ((f"default {index}", each) for index, each in enumerate(function.__defaults__ or ()))


def _names_used(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_used(constant)
