"""The language of `trial list --where`: comparisons, joined by `and`, `or`, `not` and parentheses.

    condition  = all ("or" all)*
    all        = one ("and" one)*
    one        = "not" one | "(" condition ")" | NAME operator VALUE
    operator   = "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "contains"

A NAME or a VALUE is a word, or any text in quotes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from core_sdk._home.fields import Field

Lookup = Callable[[str], Any]
"""Returns the value of a name, or None if there is none."""
_Rule = Callable[[Lookup], bool]

_TOKEN = re.compile(r"""\s*(?:(?P<operator><=|>=|!=|==|=|<|>)|(?P<paren>[()])|"(?P<double>[^"]*)"|'(?P<single>[^']*)'
                        |(?P<word>[^\s()<>=!"']+)|(?P<other>.))""", re.VERBOSE)  # fmt: skip
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "contains": operator.contains,
}
_KEYWORDS = ("and", "or", "not")
_MAX_DEPTH = 50
"""The largest depth of nested parentheses and `not`. More would exhaust Python's stack."""


class ConditionError(ValueError):
    """The condition cannot be understood. `place` is the position of the problem in its text."""

    def __init__(self, problem: str, text: str, place: int) -> None:
        self.problem = problem
        self.pointer = f"{text}\n{' ' * place}^"
        super().__init__(f"{problem}\n  {text}\n  {' ' * place}^")
        self.place = place


class Equality(NamedTuple):
    """A comparison by `=` or `!=`."""

    name: str
    value: bool | float | str
    place: int
    """The position of the value in the text."""


class Condition(msgspec.Struct, frozen=True):
    """A condition on the values of a trial."""

    text: str
    holds: _Rule
    names: Mapping[str, int]
    """The names that it compares, and their places in the text."""
    equalities: Sequence[Equality]

    def check(self, problem_with: Callable[[str], str], field_of: Callable[[str], Field | None]) -> None:
        """Raises `ConditionError` if something is wrong with a name, or if its field can never have the value."""
        for name, place in self.names.items():
            if problem := problem_with(name):
                raise ConditionError(problem, self.text, place)
        for name, value, place in self.equalities:
            field = field_of(name)
            possible = () if field is None else ("true", "false") if field.kind == "bool" else field.values
            if possible and str(value).casefold() not in map(str.casefold, possible):
                told = ", ".join(one or '""' for one in possible)
                raise ConditionError(f"{name} is never {value!r}, but one of {told}", self.text, place)


def parse_condition(text: str) -> Condition:
    """Parses a condition. Raises `ConditionError`."""
    parser = _ConditionParser(text)
    rule = parser.condition()
    parser.expect_end()
    return Condition(text, rule, parser.names, parser.equalities)


class _Token:
    def __init__(self, found: re.Match[str]) -> None:
        self.kind = str(found.lastgroup)
        self.text = found[self.kind]
        self.place = found.end() - len(found[0].lstrip())


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [_Token(found) for found in _TOKEN.finditer(text.rstrip())]
        self._index = 0
        self._depth = 0
        self.names: dict[str, int] = {}
        self.equalities: list[Equality] = []

    def condition(self) -> _Rule:
        return _joined(self._separated("or", self._all), decisive=True)

    def _all(self) -> _Rule:
        return _joined(self._separated("and", self._one), decisive=False)

    def expect_end(self) -> None:
        if self._next is not None:
            raise self._missing("`and` or `or`")

    def _separated(self, keyword: str, parse: Callable[[], _Rule]) -> list[_Rule]:
        rules = [parse()]
        while self._take_keyword(keyword):
            rules.append(parse())
        return rules

    def _one(self) -> _Rule:
        if self._depth > _MAX_DEPTH:
            place = len(self._text) if self._next is None else self._next.place
            raise ConditionError(f"more than {_MAX_DEPTH} levels of parentheses or `not`", self._text, place)
        self._depth += 1
        rule = self._nested_one()
        self._depth -= 1
        return rule

    def _nested_one(self) -> _Rule:
        if self._take_keyword("not"):
            negated = self._one()
            return lambda lookup: not negated(lookup)
        if self._take("paren", "("):
            rule = self.condition()
            if not self._take("paren", ")"):
                raise self._missing("a `)`")
            return rule
        return self._comparison()

    def _comparison(self) -> _Rule:
        name = self._take_text("a name")
        self.names.setdefault(name.text, name.place)
        token = self._take("operator") or self._take("word", "contains")
        if token is None:
            raise self._missing("an operator (= != < <= > >= contains)")
        value = self._take_text("a value")
        is_text = value.kind != "word" or token.kind == "word"
        literal = value.text if is_text else _literal(value.text)
        if _OPERATORS[token.text] in (operator.eq, operator.ne):
            self.equalities.append(Equality(name.text, literal, value.place))
        return _comparison(name.text, token.text, literal)

    @property
    def _next(self) -> _Token | None:
        return self._tokens[self._index] if self._index < len(self._tokens) else None

    def _take(self, kind: str, text: str | None = None) -> _Token | None:
        token = self._next
        if token is None or token.kind != kind or text not in (None, token.text):
            return None
        self._index += 1
        return token

    def _take_keyword(self, keyword: str) -> bool:
        token = self._next
        return token is not None and token.text.lower() == keyword and self._take("word") is not None

    def _take_text(self, what: str) -> _Token:
        token = self._next
        if token is not None and token.kind == "word" and token.text.lower() in _KEYWORDS:
            raise self._missing(what)
        if found := self._take("word") or self._take("double") or self._take("single"):
            return found
        if token is not None and token.text in ("'", '"'):
            raise self._missing("the closing quote")
        raise self._missing(what)

    def _missing(self, what: str) -> ConditionError:
        place = len(self._text) if self._next is None else self._next.place
        return ConditionError(f"{what} is missing", self._text, place)


def _joined(rules: Sequence[_Rule], decisive: bool) -> _Rule:
    """Joins rules. The first one that returns `decisive` decides for all: False joins by `and`, True by `or`."""

    def rule(lookup: Lookup) -> bool:
        for one in rules:
            if one(lookup) is decisive:
                return decisive
        return not decisive

    return rule if len(rules) > 1 else rules[0]


def _literal(word: str) -> bool | float | str:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return float(word) if re.search(r"[.eEnN]", word) else int(word)
    except ValueError:
        return word


def _comparison(name: str, symbol: str, literal: bool | float | str) -> _Rule:
    """Returns the rule of a comparison. Only values of the same type are compared; all numbers are of one type.

    The case of text does not matter. The rule is applied to thousands of trials at each keystroke, so everything that
    depends only on the condition is computed beforehand.
    """
    compare, is_text = _OPERATORS[symbol], isinstance(literal, str)
    wanted = literal.casefold() if isinstance(literal, str) else literal
    kinds = () if is_text else (bool,) if isinstance(literal, bool) else (int, float)

    def rule(lookup: Lookup) -> bool:
        value = lookup(name)
        kind = type(value)
        if kind is str:
            return is_text and bool(compare(value.casefold(), wanted))
        if kind is tuple:  # labels: one of them, or none
            if compare is operator.contains:
                return any(wanted in label.casefold() for label in value)
            is_there = any(label.casefold() == wanted for label in value)
            return is_there if compare is operator.eq else compare is operator.ne and not is_there
        return kind in kinds and bool(compare(value, wanted))

    return rule
