"""The declaration of rows: what JSON, SQL, lists and the page need to know of a field stands at the field itself.

A row is a struct. The name of a field is its name in JSON, its column in SQL, and a name in conditions. Its type
says how it is written there. A field with a `Title` is also a column of lists and of the page.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from core_sdk._ground.records import Time

FieldKind = Literal["integer", "number", "time", "text", "bool", "texts", "structure"]
"""A time is in seconds since the Unix epoch. A structure is anything that is written as JSON."""

_KINDS: dict[Any, FieldKind] = {int: "integer", float: "number", str: "text", bool: "bool", tuple[str, ...]: "texts"}
_IS_TIME = get_args(Time)[1]


class Title(msgspec.Struct, frozen=True):
    """Makes a field a column of lists and of the page: `name: Annotated[str, Title("Name")]`."""

    text: str
    column: str = ""
    """The name of the column, if it is another one than the field's."""
    values: tuple[str, ...] = ()
    """The values that a text can have, if these are few and its type does not say so."""


class Field(NamedTuple):
    name: str
    kind: FieldKind
    title: str
    """Empty for a field that is no column of lists."""
    column: str
    """The name of the column in lists."""
    values: tuple[str, ...] = ()
    """The only values that it can have; empty for any."""


@cache
def declared(row: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Returns the fields of a row, in their order."""
    hints = get_type_hints(row, include_extras=True)
    return tuple(_declared(name, hints[name]) for name in row.__struct_fields__)


def titled(row: type[msgspec.Struct]) -> dict[str, Field]:
    """Returns the fields of a row that have a title, by the names of their columns."""
    return {field.column: field for field in declared(row) if field.title}


def _declared(name: str, hint: Any) -> Field:
    title = next((one for one in get_args(hint)[1:] if isinstance(one, Title)), Title(""))
    values = title.values or tuple(map(str, get_args(_bare(hint)) if get_origin(_bare(hint)) is Literal else ()))
    return Field(name, _kind(hint), title.text, title.column or name, values)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _kind(hint: Any) -> FieldKind:
    """Returns the kind of a type, also of one that may be None."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return "time" if _IS_TIME in notes else _kind(inner)
    if get_origin(hint) in (Union, types.UnionType):
        kinds = {_kind(one) for one in get_args(hint) if one is not types.NoneType}
        return kinds.pop() if len(kinds) == 1 else "structure"
    if get_origin(hint) is Literal:
        return "text"
    return _KINDS.get(hint, "structure")
