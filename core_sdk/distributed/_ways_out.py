"""How statements leave the block that they stand in, as far as it can be seen from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal

Way = Literal["return", "raise", "break", "continue", "exit"]
Ways = frozenset[Way]

NONE: Ways = frozenset()
_EXITS = ("sys.exit", "os._exit", "os.abort", "exit", "quit")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_TRIES = (ast.Try, ast.TryStar)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def ways_out(block: Sequence[ast.stmt]) -> Ways:
    """The ways by one of which control surely leaves these statements; empty where it may come to their end."""
    return next((ways for ways in map(_of_statement, block) if ways), NONE)


def beyond(owner: ast.AST, field: str, ways: Ways) -> Ways:
    """What remains of the ways out of a block of a compound statement for the statement as a whole."""
    if field != "body":
        return ways
    if isinstance(owner, _LOOPS) and not ways.isdisjoint({"break", "continue"}):
        return NONE
    if isinstance(owner, _TRIES) and owner.handlers and "raise" in ways:
        return NONE
    return ways


def _of_statement(statement: ast.stmt) -> Ways:
    match statement:
        case ast.Return():
            return frozenset({"return"})
        case ast.Raise():
            return frozenset({"raise"})
        case ast.Break():
            return frozenset({"break"})
        case ast.Continue():
            return frozenset({"continue"})
        case ast.Expr(value=ast.Call(func=function)) if ast.unparse(function) in _EXITS:
            return frozenset({"exit"})
        case ast.With() | ast.AsyncWith():
            return ways_out(statement.body)
        case ast.If():
            return _of_all([statement.body, statement.orelse])
        case ast.Match() if _takes_anything(statement.cases[-1]):
            return _of_all([case.body for case in statement.cases])
        case ast.While(test=ast.Constant(value=value)) if value and not any(_own_breaks(statement.body)):
            return frozenset({"return"})
        case ast.Try() | ast.TryStar():
            return _of_try(statement)
    return NONE


def _of_all(blocks: Sequence[Sequence[ast.stmt]]) -> Ways:
    ways = [ways_out(block) for block in blocks]
    return NONE.union(*ways) if all(ways) else NONE


def _of_try(statement: ast.Try | ast.TryStar) -> Ways:
    handlers = [handler.body for handler in statement.handlers]
    return ways_out(statement.finalbody) or _of_all([[*statement.body, *statement.orelse], *handlers])


def _takes_anything(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _own_breaks(block: Sequence[ast.AST]) -> Iterator[ast.Break]:
    """The `break`s that end the loop whose body this is, and not one inside it."""
    for node in block:
        if isinstance(node, ast.Break):
            yield node
        elif isinstance(node, _LOOPS):
            yield from _own_breaks(node.orelse)
        elif not isinstance(node, _SCOPES):
            yield from _own_breaks(list(ast.iter_child_nodes(node)))
