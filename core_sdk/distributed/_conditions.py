"""Whether two conditions hold on different ranks, as far as it can be seen from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Condition(NamedTuple):
    """A test, and how it came out."""

    test: ast.expr
    holds: bool


def part_ranks(one: Sequence[Condition], other: Sequence[Condition]) -> bool:
    """Whether what is run under the one conditions, and what is run under the other, is run by different ranks.

    So it is for `rank == 0` and `rank != 0`, and we take it to be so for any two that differ and speak of ranks, say
    `is_chief` and `local_rank > 0`: what they amount to cannot be seen.
    """
    others = [fact for condition in other for fact in _facts(*condition)]
    return any(_part(fact, another) for condition in one for fact in _facts(*condition) for another in others)


class _Fact(NamedTuple):
    text: str
    holds: bool
    speaks_of_ranks: bool


def _part(one: _Fact, other: _Fact) -> bool:
    if one.text == other.text:
        return one.holds != other.holds
    return one.speaks_of_ranks and other.speaks_of_ranks


_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
}


def _facts(test: ast.expr, holds: bool) -> Iterator[_Fact]:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _facts(operand, not holds)
        case ast.BoolOp(op=operator, values=values) if isinstance(operator, ast.And) == holds:
            for value in values:
                yield from _facts(value, holds)
        case ast.Compare(left=left, ops=[comparison], comparators=comparators) if type(comparison) in _OPPOSITES:
            yield from _facts(ast.Compare(left, [_OPPOSITES[type(comparison)]()], comparators), not holds)
        case _:
            yield _Fact(ast.unparse(test), holds, any(map(_RANK_WORDS.search, _names(test))))


_RANK_WORDS = re.compile(r"(^|_)(is)?(rank|chief|master|main|leader|primary|worker)\d*(_|$)", re.IGNORECASE)


def _names(test: ast.expr) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
