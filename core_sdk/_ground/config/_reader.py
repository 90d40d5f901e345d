"""Turns plain values into sections, and finds all problems, not only the first."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_origin

import msgspec

from core_sdk._ground.config._document import Document, Path, dotted
from core_sdk._ground.config._kinds import bare, describe, fields_of, meta_of, sections
from core_sdk._ground.decoding import convert
from core_sdk._ground.sections import InvalidSectionError, Section

INVALID: Any = object()
"""Stands for a value whose problems have been noted."""


class Reader:
    """Reads the values of one document.

    `short_forms` has a function for each type whose values have short or old forms. All others are read by their type.
    """

    def __init__(self, document: Document, root: type[Section], short_forms: Mapping[Any, ShortForm]) -> None:
        self.document = document
        self._root = root
        self._short_forms = short_forms

    def read(self, kind: Any, value: Any, path: Path) -> Any:
        """Returns the value as one of type `kind`, or INVALID."""
        plain = bare(kind)
        if plain in self._short_forms:
            return self._short_forms[plain](self, value, path)
        if isinstance(plain, type) and issubclass(plain, Section):
            return self.section(plain, value, path)
        if get_origin(plain) is tuple and isinstance(value, list) and value:
            items = [self.read(get_args(plain)[0], item, (*path, index)) for index, item in enumerate(value)]
            return INVALID if INVALID in items else tuple(items)
        try:
            return convert(value, kind)
        except msgspec.ValidationError:
            return self.invalid(path, f"must be {describe(kind)}, and is {shown(value)}")

    def section(self, kind: type[Section], value: Any, path: Path) -> Any:
        """Returns the map as a section of type `kind`, or INVALID."""
        if not isinstance(value, dict):
            return self.invalid(path, f"must be a map, and is {shown(value)}")
        fields = {field.name: field for field in fields_of(kind)}
        given = {
            key: self._field(kind, fields, key, item, (*path, key))
            for key, item in value.items()
            if item is not None or key not in fields or bare(fields[key].type) is Any
        }
        missing = [field for field in fields.values() if field.required and field.name not in given]
        for field in missing:
            self.invalid((*path, field.name), f"is missing: {meta_of(field.type).description}")
        if missing or INVALID in given.values():
            for key, problem in kind.without_alternative(given):
                self.invalid((*path, key), problem)
            return INVALID
        try:
            return kind(**{key: item for key, item in given.items() if key in fields})
        except InvalidSectionError as error:
            for key, problem in error.problems:
                self.invalid((*path, *key.split(".")), problem)
            return INVALID

    def tagged(self, kinds: Mapping[str, type[Section]], tag: str, value: Mapping[str, Any], path: Path) -> Any:
        """Returns the map as the section that its key `tag` names, or INVALID."""
        name = value.get(tag)
        if name is None:
            return self.invalid((*path, tag), f"is missing: one of {', '.join(kinds)}")
        if not isinstance(name, str) or name not in kinds:
            return self.invalid((*path, tag), f"is {shown(name)}, which does not exist; {_proposal(str(name), kinds)}")
        return self.section(kinds[name], {key: item for key, item in value.items() if key != tag}, path)

    def invalid(self, path: Path, problem: str) -> Any:
        """Records a problem at `path`, and returns INVALID."""
        self.document.add_problem(path, problem)
        return INVALID

    def unknown(self, path: Path, known: Iterable[str]) -> Any:
        """Records that a key does not exist, with the nearest one that does, and returns INVALID."""
        key = str(path[-1])
        elsewhere = {other.rpartition(".")[2]: other for other in reversed(_paths(self._root))}
        if dotted(path) in elsewhere.values():
            proposal = f"there are {', '.join(known)}"  # the key of another searcher
        elif key in elsewhere:
            proposal = f"did you mean {elsewhere[key]}?"
        else:
            proposal = _proposal(key, known)
        return self.invalid(path, f"is unknown here; {proposal}")

    def _field(self, kind: type[Section], fields: Mapping[str, Any], key: str, value: Any, path: Path) -> Any:
        if value is None and (key in kind.refused or key in kind.ignored):
            return None
        if key in kind.refused:
            return self.invalid(path, f"cannot be honoured: {kind.refused[key]}")
        if key in kind.ignored:
            for place in [(*path, inner) for inner in value] if isinstance(value, dict) else [path]:
                self.document.add_warning(place, f"is ignored: {kind.ignored[key]}")
            return None
        if key not in fields:
            return self.unknown(path, fields)
        return self.read(fields[key].type, value, path)


ShortForm = Callable[[Reader, Any, Path], Any]


def shown(value: Any) -> str:
    """Returns a value as messages show it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dict():
            return "a map"
        case list():
            return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _proposal(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _paths(section: type[Section]) -> list[str]:
    """Returns all keys of a section and of the sections in it, with dots between them."""
    fields = fields_of(section)
    inner = [f"{field.name}.{path}" for field in fields for kind in sections(field.type) for path in _paths(kind)]
    return [*(field.name for field in fields), *inner]
