"""A route: a path, and the function that answers it. Its types are read, checked and described from one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from core_sdk._ground.records import MAX_INT, MAX_NAME_BYTES, WRITER_NAME
from core_sdk._interfaces.server.shared_view import SharedView

Id = Annotated[int, msgspec.Meta(ge=1, le=MAX_INT - 1)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=10**9)]
AnyRank = Annotated[str, msgspec.Meta(pattern=f"^([0-9]{{1,9}}|{WRITER_NAME})$")]
"""A rank, the name of a writer, or "all"."""
RankOrWriter = Annotated[str, msgspec.Meta(pattern=f"^([0-9]{{1,9}}|(?!all$){WRITER_NAME})$")]

LONGEST_TEXT = 4 * MAX_NAME_BYTES + 100
"""The characters of a question about two metrics, each with its group."""
Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=1000)]
Cursor = Annotated[int, msgspec.Meta(ge=0)]
"""The place in a long list where a page begins: 0, or `next` of the page before."""

_T = TypeVar("_T")


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a route. One that is a tuple may be given several times, since names may hold any character."""


class NoQuery(Query, frozen=True):
    """A route without parameters."""


@dataclass(frozen=True)
class Route:
    """A function of the records, its query and the ids in its path. It runs in a thread, and may block."""

    path: str
    """Below `/api/v1`, with its ids in braces."""
    answer: Callable[..., Any]
    method: Literal["GET", "POST"] = "GET"

    def ask(self, shared: SharedView, **arguments: Any) -> Any:
        return self.answer(shared, **arguments)

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.answer) or "").partition("\n\n")[0].replace("\n", " ")

    @functools.cached_property
    def hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.answer, include_extras=True)

    @property
    def query(self) -> type[Query]:
        query: type[Query] = self.hints.get("query", NoQuery)
        return query

    @functools.cached_property
    def lists(self) -> frozenset[str]:
        """The parameters that may be given several times."""
        fields = msgspec.structs.fields(self.query)
        return frozenset(field.name for field in fields if get_origin(_plain(field.type)) is tuple)

    @property
    def path_types(self) -> dict[str, Any]:
        names = [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
        return {name: self.hints[name] for name in names}


@dataclass(frozen=True)
class Action(Route):
    """A route that changes something: a server that only reads refuses it."""

    method: Literal["GET", "POST"] = "POST"

    def ask(self, shared: SharedView, **arguments: Any) -> Any:
        shared.check_actions()
        done = self.answer(shared, **arguments)
        shared.forget()
        return done


def page_of(found: Sequence[_T], cursor: int, limit: int) -> tuple[list[_T], int | None]:
    """Returns at most `limit` of the items found, and the cursor of the next page, which is None on the last page."""
    end = cursor + limit
    return list(found[cursor:end]), end if end < len(found) else None


def _plain(kind: Any) -> Any:
    """Returns a type without its annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
