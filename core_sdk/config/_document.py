"""Reads YAML into plain values, and remembers where each of them stands.

Values without quotes are read by the rules of YAML 1.2, as the predecessor reads them: `1e-5` is a number, `010` is
ten, and `yes`, `on` and `2026-11-22` are strings. PyYAML alone reads YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from core_sdk.errors import ConfigProblem

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

Path = tuple[str | int, ...]

MAX_CHARACTERS = 2**20
MAX_VALUES = 100_000
"""How many values a file may have once its aliases are expanded; a few lines of aliases can stand for billions."""
MAX_DEPTH = 50

_TAG = "tag:yaml.org,2002:"
SCALARS = [
    (f"{_TAG}null", re.compile(r"(?:~|null|Null|NULL|)$", re.ASCII), ["~", "n", "N", ""]),
    (f"{_TAG}bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$", re.ASCII), list("tTfF")),
    (f"{_TAG}int", re.compile(r"(?:[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)$", re.ASCII), list("-+0123456789")),
    (
        f"{_TAG}float",
        re.compile(
            r"(?:[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", re.ASCII
        ),
        list("-+.0123456789"),
    ),
    (f"{_TAG}merge", re.compile(r"<<$"), ["<"]),
]


@dataclass
class Document:
    """The values of a configuration, each with the place where it stands."""

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, str] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)

    def add_problem(self, path: Path, problem: str) -> None:
        self.problems.append(ConfigProblem(self.place(path), dotted(path), problem))

    def override(self, assignment: str) -> None:
        """Applies one `a.b=VALUE`, as of `--config`."""
        place = f"--config {assignment}"
        name, equals, text = assignment.partition("=")
        path = tuple(name.split("."))
        if not equals or not all(path):
            self.problems.append(ConfigProblem(place, "", "is not of the form a.b=VALUE"))
            return
        parser = _Parser(place, is_file=False)
        value = _assigned(parser, name, text)
        self.problems += parser.problems
        group = self.values
        for depth, key in enumerate(path[:-1], start=1):
            if group.get(key) is None:
                group[key] = {}
            group = group[key]
            if not isinstance(group, dict):
                self.problems.append(ConfigProblem(place, dotted(path[:depth]), "is not a map, and has no keys"))
                return
        group[path[-1]] = value
        for known in [known for known in self.places if known[: len(path)] == path]:
            del self.places[known]
        self.places[path] = place

    def place(self, path: Path) -> str:
        """The file and the line, or the `--config`, where the value stands or should stand."""
        known = (self.places.get(path[:length]) for length in range(len(path), 0, -1))
        return next(filter(None, known), self.source)


def parse(text: str, source: str) -> Document:
    """The document in `text`; what is wrong with it is among its `problems`."""
    parser = _Parser(source)
    values = parser.parse(text)
    document = Document(source, values if isinstance(values, dict) else {}, parser.places, parser.problems)
    if not isinstance(values, dict) and not parser.problems:
        document.add_problem((), "the file is empty" if values is None else "the file must be a map")
    return document


def dotted(path: Path) -> str:
    """The path as people write it: `searcher.bracket_rungs[0]`."""
    names = (f"[{name}]" if isinstance(name, int) else f".{name}" for name in path)
    return "".join(names).removeprefix(".")


_LISTS = frozenset({"labels", "environment.environment_variables", "log_policies", "searcher.bracket_rungs"})


def _assigned(parser: _Parser, name: str, text: str) -> Any:
    is_yaml = text.startswith(("[", "{", "'", '"'))
    if "," in text and not is_yaml:
        return [parser.parse(part) for part in text.split(",")]
    value = parser.parse(text)
    return [value] if name in _LISTS and not isinstance(value, list) and value is not None else value


class _Loader(_SafeLoader):
    """Composes nodes whose scalars are resolved by the rules of YAML 1.2."""

    yaml_implicit_resolvers = {}


for _tag, _pattern, _first in SCALARS:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)


class _TooLarge(Exception):
    pass


class _Parser:
    def __init__(self, source: str, *, is_file: bool = True) -> None:
        self._source = source
        self._is_file = is_file
        self._num_values = 0
        self.places: dict[Path, str] = {}
        self.problems: list[ConfigProblem] = []

    def parse(self, text: str) -> Any:
        try:
            if len(text) > MAX_CHARACTERS:
                raise _TooLarge(f"is longer than {MAX_CHARACTERS:,} characters")
            loader = _Loader(text)
            try:
                node = loader.get_single_node()
            finally:
                loader.dispose()
            return None if node is None else self._value(node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._add_problem(mark, (), f"this is not YAML: {error.problem or error.context}")
        except (yaml.YAMLError, _TooLarge, RecursionError) as error:
            self._add_problem(None, (), f"this cannot be read: {error}")
        return None

    def _value(self, node: yaml.Node, path: Path) -> Any:
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise _TooLarge(f"it has more than {MAX_VALUES:,} values, counting each alias as what it stands for")
        if len(path) > MAX_DEPTH:
            raise _TooLarge(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return list(self._items(node, path))
        return self._scalar(node, path)

    def _items(self, node: yaml.SequenceNode, path: Path) -> Iterator[Any]:
        for index, item in enumerate(node.value):
            self.places.setdefault((*path, index), self._place(item.start_mark))
            yield self._value(item, (*path, index))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                continue
            key = key_node.value
            if key_node.tag != f"{_TAG}str":
                self._add_problem(key_node.start_mark, path, f"has the key {_text(key_node)}: write it in quotes")
            elif key in lines:
                self._add_problem(key_node.start_mark, (*path, key), f"is given twice, first in line {lines[key]}")
            else:
                lines[key] = key_node.start_mark.line + 1
                self.places.setdefault((*path, key), self._place(key_node.start_mark))
                values[key] = self._value(value_node, (*path, key))
        for merged in _merged(node):
            inherited = self._value(merged, path)
            values = inherited | values if isinstance(inherited, dict) else values
        return values

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        try:
            value = _scalar(node.tag.removeprefix(_TAG), node.value)
        except ValueError as error:
            self._add_problem(node.start_mark, path, str(error))
            return None
        return value

    def _add_problem(self, mark: yaml.Mark | None, path: Path, problem: str) -> None:
        self.problems.append(ConfigProblem(self._place(mark), dotted(path), problem))

    def _place(self, mark: yaml.Mark | None) -> str:
        return f"{self._source}:{mark.line + 1}" if mark is not None and self._is_file else self._source


def _merged(node: yaml.MappingNode) -> Sequence[yaml.Node]:
    """The maps that `<<` takes in; the first has precedence."""
    found = [value for key, value in node.value if key.tag == f"{_TAG}merge"]
    return [inner for value in found for inner in (value.value if isinstance(value, yaml.SequenceNode) else [value])]


def _text(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else "that is a list or a map"


def _scalar(kind: str, text: str) -> Any:
    match kind:
        case "str":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _int64(text.replace("_", ""))
        case "float":
            return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
    raise ValueError(f"has the tag {kind}, which configurations do not use")


def _int64(text: str) -> int:
    value = int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"is {text}, which is beyond 64 bits")
    return value
