"""Digests the plain variables of the script, among them counters, best values, buffers and generators."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from core_sdk.core._recorders._fingerprints._digests import digest, is_tensor, state_of_generator

_PACKAGE = Path(__file__).parents[3]
_MAX_DEPTH = 4
_MAX_VARIABLES = 500
_MAX_NAMED_KEYS = 20
_MAX_TEXT = 60


def variables(frame: FrameType | None, generator_functions: Iterable[Any] = ()) -> dict[str, str]:
    """Returns the variables of the script's functions that have led to this frame, by names that say where they are.

    Numbers and short texts are kept as they are; digests begin with `#`, and with `list` if they are of whole numbers
    or texts. Functions that are suspended in a `yield` are looked into too.
    """
    parts: dict[str, str] = {}
    scopes = [*_frames(frame), *(each.gi_frame for each in generator_functions if each.gi_frame is not None)]
    seen = set[int]()
    for scope in scopes:
        if not _is_of_script(scope.f_code.co_filename) or id(scope) in seen:
            continue
        seen.add(id(scope))
        for name, value in list(scope.f_locals.items()):
            if not name.startswith("__"):
                for path, kind, found in _walk(name, value, seen, _MAX_DEPTH):
                    parts.setdefault(f"{kind} {path} of {_place(scope.f_code)}", found)
                    if len(parts) >= _MAX_VARIABLES:
                        return parts
    return parts


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(code: CodeType) -> str:
    file = Path(code.co_filename).name
    return file if code.co_name == "<module>" else f"{code.co_name}() in {file}"


@functools.cache
def _is_of_script(filename: str) -> bool:
    """Returns whether the file is part of no library."""
    path = Path(filename).absolute()
    libraries = [_PACKAGE, Path(sysconfig.get_path("stdlib"))]
    is_in_library = any(path.is_relative_to(each) for each in libraries)
    return path.is_file() and not is_in_library and not {"site-packages", "dist-packages"} & set(path.parts)


def _is_of_class_of_script(value: Any) -> bool:
    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None)
    return file is not None and _is_of_script(file)


def _walk(name: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, str, str]]:
    """Yields the name, the kind and the value of each variable below this one."""
    if isinstance(value, bool | int | float | None):
        yield name, "variable", repr(value)
    elif isinstance(value, str):
        yield name, "variable", repr(value) if len(value) <= _MAX_TEXT else f"#{digest(value)}"
    elif isinstance(value, ModuleType | FunctionType | type) or id(value) in seen or depth == 0:
        return
    elif state_of_generator(value) is not None:
        yield name, "generator", f"#{digest(value)}"
    elif is_tensor(value) or (hasattr(value, "dtype") and hasattr(value, "tobytes")):
        yield name, "variable", f"#{digest(value)}"
    else:
        seen.add(id(value))
        yield from _walk_into(name, value, seen, depth)


def _walk_into(name: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, Mapping) and len(value) <= _MAX_NAMED_KEYS and all(isinstance(each, str) for each in value):
        for key, each in list(value.items()):
            yield from _walk(f'{name}["{key}"]', each, seen, depth - 1)
    elif isinstance(value, list | tuple | deque | Mapping | Set):
        if isinstance(value, list | tuple) and any(map(_is_of_class_of_script, value[:_MAX_NAMED_KEYS])):
            for index, each in enumerate(value[:_MAX_NAMED_KEYS]):
                yield from _walk(f"{name}[{index}]", each, seen, depth - 1)
        else:
            is_discrete = isinstance(next(iter(value), None), int | str | bytes) and not isinstance(value, Mapping)
            yield name, "variable", f"{'list ' if is_discrete else ''}#{digest(value)}"
    elif _is_of_class_of_script(value):
        for key, each in list(getattr(value, "__dict__", {}).items()):
            # The parameters of a module have their own parts.
            if not (key.startswith("_") and hasattr(value, "named_parameters")):
                yield from _walk(f"{name}.{key}", each, seen, depth - 1)
    elif hasattr(value, "dataset") and hasattr(value, "batch_sampler"):
        yield from _walk(f"{name}.dataset", value.dataset, seen, depth - 1)
