"""Describes the types of fields in words."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo

from core_sdk._ground.sections import Section

_WORDS = {bool: "true or false", int: "an int", float: "a number", str: "a string", dict: "a map", tuple: "a list"}


def describe(kind: Any) -> str:
    """Returns in words what a value of this type must be, such as "an int of at least 1"."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _limited(describe(kind.__origin__), meta_of(kind))
    if is_union(kind):
        return " or ".join(dict.fromkeys(map(describe, members(kind))))
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _WORDS.get(origin or kind, "a map")


def meta_of(kind: Any) -> Meta:
    """Returns the limits and the description in an annotated type. For `X | None`, they belong to X."""
    found = [meta for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, Meta)]
    if not found and is_union(kind):
        found = [meta_of(member) for member in members(kind)]
    return found[0] if found else Meta()


def bare(kind: Any) -> Any:
    """Returns the type without annotations and without None."""
    if get_origin(kind) is Annotated:
        return bare(kind.__origin__)
    if is_union(kind):
        return functools.reduce(operator.or_, map(bare, members(kind)))
    return kind


def is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def members(union: Any) -> list[Any]:
    """Returns the members of a union, without None."""
    return [member for member in get_args(union) if member is not type(None)]


def sections(kind: Any) -> Iterator[type[Section]]:
    """Yields the sections that a value of this type may hold."""
    if isinstance(kind, type) and issubclass(kind, Section):
        yield kind
    for argument in get_args(kind):
        yield from sections(argument)


@functools.cache
def fields_of(section: type[Section]) -> tuple[FieldInfo, ...]:
    """Returns the fields with their types. Cached, since types take long to resolve."""
    return msgspec.structs.fields(section)


def _limited(words: str, meta: Meta) -> str:
    if meta.examples:
        return f"{words} such as {meta.examples[0]}"
    if meta.min_length:
        return f"{words} that is not empty"
    if meta.gt is not None:
        return f"{words} greater than {meta.gt}"
    if meta.ge is not None and meta.le is not None:
        return f"{words} from {meta.ge} to {meta.le}"
    return words if meta.ge is None else f"{words} of at least {meta.ge}"
