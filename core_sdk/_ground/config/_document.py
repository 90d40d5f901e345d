"""Reads YAML into plain values, and remembers where each of them stands.

Values without quotes are read by the rules of YAML 1.2, as the predecessor reads them: `1e-5` is a number, `010` is
ten, and `yes`, `on` and `2026-11-22` are strings. PyYAML alone reads YAML 1.1.

ruamel.yaml, which reads YAML 1.2, does not make this shorter. Its parser of 1.2 is in Python: a file of 100 KB takes it
0.9 s in place of 0.1 s, and deep nesting ends in `RecursionError`. It makes a date of `2026-11-22`, stops at the first
problem, and has no limit for aliases, so that the nodes would be walked as they are here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from core_sdk.errors import ConfigProblem, InvalidConfigError

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

Path = tuple[str | int, ...]
Place = tuple[str, int | None]
"""A file and a line, or an override."""

MAX_CHARACTERS = 2**20
MAX_VALUES = 100_000
"""The largest number of values in a file after its aliases are expanded. A few lines of aliases can mean billions."""
MAX_DEPTH = 50

_TAG = "tag:yaml.org,2002:"
SCALARS = [
    (f"{_TAG}null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    (f"{_TAG}bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    (f"{_TAG}int", re.compile(r"(?:[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    (f"{_TAG}float", re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"), list("-+.0123456789")),
    (f"{_TAG}float", re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"), list("-+.")),
    (f"{_TAG}merge", re.compile(r"<<$"), ["<"]),
]


@dataclass
class Document:
    """The values of a configuration, each with the place where it stands."""

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)
    warnings: list[ConfigProblem] = field(default_factory=list)

    def add_problem(self, path: Path, problem: str) -> None:
        self.problems.append(ConfigProblem(*self._place(path), dotted(path), problem))

    def add_warning(self, path: Path, warning: str) -> None:
        self.warnings.append(ConfigProblem(*self._place(path), dotted(path), warning))

    def override(self, assignment: str) -> None:
        """Applies one `a.b=VALUE`."""
        name, _, text = assignment.partition("=")
        path = tuple(name.split("."))
        parser = _YamlParser(f"--config {assignment}")
        value = _assigned(parser, name, text)
        self.problems += parser.problems
        self.places = {known: place for known, place in self.places.items() if known[: len(path)] != path}
        self.places[path] = (f"--config {assignment}", None)
        if "=" not in assignment or not all(path):
            self.add_problem(path, "is not of the form a.b=VALUE")
            return
        group = self.values
        for depth, key in enumerate(path[:-1], start=1):
            if group.get(key) is None:
                group[key] = {}
            group = group[key]
            if not isinstance(group, dict):
                self.add_problem(path, f"cannot be set, because {dotted(path[:depth])} is not a map")
                return
        group[path[-1]] = value

    def _place(self, path: Path) -> Place:
        """Returns the place where the value stands or should stand."""
        known = (self.places.get(path[:length]) for length in range(len(path), 0, -1))
        return next(filter(None, known), (self.source, None))


def parse(text: str, source: str) -> Document:
    """Returns the document in `text`, with its `problems`. Raises `InvalidConfigError` if it has no values at all."""
    parser = _YamlParser(source, has_lines=True)
    values = parser.parse(text)
    if not isinstance(values, dict):
        nothing = "the file is empty" if values is None else "the file must be a map"
        raise InvalidConfigError(parser.problems or [ConfigProblem(source, None, "", nothing)])
    return Document(source, values, parser.places, parser.problems)


def parse_value(text: str, source: str) -> Any:
    """Returns the value that an argument of a command stands for in YAML. Raises `InvalidConfigError`."""
    parser = _YamlParser(source)
    value = parser.parse(text)
    if parser.problems:
        raise InvalidConfigError(parser.problems)
    return value


def dotted(path: Path) -> str:
    """Returns the path as people write it: `searcher.bracket_rungs[0]`."""
    names = (f"[{name}]" if isinstance(name, int) else f".{name}" for name in path)
    return "".join(names).removeprefix(".")


_LISTS = frozenset({"labels", "environment.environment_variables", "log_policies", "searcher.bracket_rungs"})


def _assigned(parser: _YamlParser, name: str, text: str) -> Any:
    if "," in text and not text.startswith(("[", "{", "'", '"')):
        return [parser.parse(part) for part in text.split(",")]
    value = parser.parse(text)
    return [value] if name in _LISTS and not isinstance(value, list) and value is not None else value


class _YamlLoader(_SafeLoader):
    """Composes nodes whose scalars are resolved by the rules of YAML 1.2."""

    yaml_implicit_resolvers = {}


for _tag, _pattern, _first in SCALARS:
    _YamlLoader.add_implicit_resolver(_tag, _pattern, _first)


class _TooLarge(Exception):
    pass


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


def _check_bounds(text: str) -> None:
    """Raises `_TooLarge` if the text is too long, or nested too deep: composing it could then crash, as C recurses."""
    if len(text) > MAX_CHARACTERS:
        raise _TooLarge(f"it is longer than {MAX_CHARACTERS:,} characters")
    depth = 0
    for event in yaml.parse(text, Loader=_YamlLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _TooLarge(_TOO_DEEP)


def _compose(text: str) -> yaml.Node | None:
    loader = _YamlLoader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _in_words(error: yaml.MarkedYAMLError, text: str) -> str:
    problem, mark = str(error.problem), error.problem_mark
    if mark is not None and text[mark.index : mark.index + 1] == "\t":
        return "here is a tab; indent with spaces"
    if problem.startswith(("expected <block end>", "mapping values are not allowed")):
        return f"{problem}; the indentation may be wrong, here or in the line before"
    return problem


class _YamlParser:
    """Turns YAML into values, and collects their places and problems."""

    def __init__(self, source: str, *, has_lines: bool = False) -> None:
        self._source = source
        self._has_lines = has_lines
        self._num_values = 0
        self.places: dict[Path, Place] = {}
        self.problems: list[ConfigProblem] = []

    def parse(self, text: str) -> Any:
        try:
            _check_bounds(text)
            node = _compose(text)
            return None if node is None else self._value(node, ())
        except yaml.MarkedYAMLError as error:
            self._add_problem(error.problem_mark, (), f"this is not YAML: {_in_words(error, text)}")
        except (yaml.YAMLError, _TooLarge) as error:
            self._add_problem(None, (), f"this cannot be read: {error}")
        return None

    def _value(self, node: yaml.Node, path: Path) -> Any:
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise _TooLarge(f"it has more than {MAX_VALUES:,} values, counting each alias as what it stands for")
        if len(path) > MAX_DEPTH:
            raise _TooLarge(_TOO_DEEP)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self._entry(item, item, (*path, index)) for index, item in enumerate(node.value)]
        try:
            return _scalar(node)
        except ValueError as error:
            self._add_problem(node.start_mark, path, str(error))
            return None

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}str" and key.value not in lines:
                lines[key.value] = key.start_mark.line + 1
                values[key.value] = self._entry(key, value, (*path, key.value))
            elif key.tag == f"{_TAG}str":
                first = f"is given twice, first in line {lines[key.value]}"
                self._add_problem(key.start_mark, (*path, key.value), first)
            elif key.tag != f"{_TAG}merge":
                self._add_problem(key.start_mark, path, "has a key that is not a string: write it in quotes")
        for merged in _merged(node):
            inherited = self._value(merged, path)
            values = (inherited if isinstance(inherited, dict) else {}) | values
        return values

    def _entry(self, where: yaml.Node, node: yaml.Node, path: Path) -> Any:
        self.places.setdefault(path, self._place(where.start_mark))
        return self._value(node, path)

    def _add_problem(self, mark: yaml.Mark | None, path: Path, problem: str) -> None:
        self.problems.append(ConfigProblem(*self._place(mark), dotted(path), problem))

    def _place(self, mark: yaml.Mark | None) -> Place:
        return self._source, mark.line + 1 if mark is not None and self._has_lines else None


def _merged(node: yaml.MappingNode) -> Iterator[yaml.Node]:
    """Yields the maps that `<<` merges. The first one has precedence."""
    for key, value in node.value:
        if key.tag == f"{_TAG}merge":
            yield from value.value if isinstance(value, yaml.SequenceNode) else [value]


def _scalar(node: yaml.Node) -> Any:
    kind, text = node.tag.removeprefix(_TAG), node.value
    if isinstance(node, yaml.ScalarNode):
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
