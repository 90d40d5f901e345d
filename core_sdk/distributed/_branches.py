"""Whether two lines lie on different branches of a function, judged from its source.

Where in doubt the lines are taken to be exclusive: the error to avoid is to stop a script that is right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from core_sdk.distributed._conditions import Condition, part_ranks
from core_sdk.distributed._ways_out import NONE, Ways, beyond, ways_out


def are_exclusive(source: str, line_a: int, line_b: int) -> bool:
    """Whether one pass through the function runs at most one of these lines.

    Raises `SyntaxError` or `ValueError` for what is not Python, `LookupError` where no function has both lines.
    """
    tree = ast.parse(source)
    places_a = list(_places(tree, line_a))
    places_b = list(_places(tree, line_b))
    pairs = [(a.path, b.path) for a in places_a for b in places_b if a.scope is b.scope]
    if not pairs:
        raise LookupError(f"lines {line_a} and {line_b} are not of one function")
    return any(_part(path_a, path_b) for path_a, path_b in pairs)


class _Step(NamedTuple):
    """From a node of the syntax tree down into one of its fields, and in a list to the element at the position."""

    node: ast.AST
    field: str
    position: int

    @property
    def block(self) -> Sequence[ast.stmt]:
        """The statements of the field; empty where it holds no statements."""
        elements = getattr(self.node, self.field)
        return elements if isinstance(elements, list) and isinstance(elements[self.position], ast.stmt) else []


_Path = tuple[_Step, ...]


class _Place(NamedTuple):
    """The way from a function, or the module, down to a piece of it."""

    scope: ast.AST
    path: _Path


def _places(tree: ast.Module, line: int) -> Iterator[_Place]:
    """The smallest pieces of code on this line: what is called on it is one of them."""
    return _places_below(tree, line, _Place(tree, ()))


def _places_below(node: ast.AST, line: int, place: _Place) -> Iterator[_Place]:
    is_leaf = True
    for step, child in _steps(node):
        if _reaches(child, line):
            for found in _places_below(child, line, _below(place, step)):
                is_leaf = False
                yield found
    if is_leaf and hasattr(node, "lineno"):
        yield place


def _steps(node: ast.AST) -> Iterator[tuple[_Step, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for position, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                yield _Step(node, field, position), child


def _reaches(node: ast.AST, line: int) -> bool:
    if not hasattr(node, "lineno"):
        # It has no position of its own, as the arguments of a function; what is in it has.
        return True
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return bool(first <= line <= node.end_lineno)  # type: ignore[attr-defined]


def _below(place: _Place, step: _Step) -> _Place:
    is_scope = isinstance(step.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
    return _Place(step.node, (step,)) if is_scope and step.field == "body" else _Place(place.scope, (*place.path, step))


def _part(path_a: _Path, path_b: _Path) -> bool:
    for depth, (step_a, step_b) in enumerate(zip(path_a, path_b, strict=False)):
        if step_a != step_b:
            return _part_here(path_a[depth:], path_b[depth:])
    return False


def _part_here(path_a: _Path, path_b: _Path) -> bool:
    """For paths from the node where they part."""
    if path_a[0].field == path_b[0].field:
        earlier, later = sorted((path_a, path_b), key=lambda path: path[0].position)
        return _part_in_list(earlier, later)
    paths = {path_a[0].field: path_a, path_b[0].field: path_b}
    match path_a[0].node, sorted(paths):
        case (ast.If() | ast.IfExp(), ["body", "orelse"]):
            return True
        case (ast.Try() | ast.TryStar(), ["body", "handlers"] | ["handlers", "orelse"]):
            # What raised may have come before the line: `try: compute(); allgather(True)`, `except: allgather(False)`.
            return True
        case (ast.Try() | ast.TryStar(), ["body", "orelse"]):
            return bool(_ways_on(paths["body"]))
        case (ast.For() | ast.AsyncFor() | ast.While(), ["body", "orelse"]):
            ways = _ways_on(paths["body"])
            return bool(ways) and "continue" not in ways
    return False


def _part_in_list(earlier: _Path, later: _Path) -> bool:
    if earlier[0].field in ("cases", "handlers"):
        # A pattern or a guard may be tried before a later case is taken; its body may not.
        return len(earlier) > 1 and earlier[1].field == "body"
    if not earlier[0].block:
        return False
    between = earlier[0].position + 1
    return bool(_ways_on(earlier, until=between)) or part_ranks(_conditions(earlier), _conditions(later, between))


def _ways_on(path: _Path, until: int | None = None) -> Ways:
    """The ways by which control surely leaves the path's first block, up to a statement of it, from its last one."""
    ways = NONE
    for inner in reversed(path[1:]):
        ways = beyond(inner.node, inner.field, ways or ways_out(inner.block[inner.position :]))
    return ways or ways_out(path[0].block[path[0].position : until])


def _conditions(path: _Path, begin: int | None = None) -> list[Condition]:
    """The conditions for coming from the statement `begin` of the path's first block to its end."""
    conditions = [] if begin is None else _passed(path[0].block[begin : path[0].position])
    for step in path[1:]:
        if isinstance(step.node, ast.If | ast.IfExp) and step.field != "test":
            conditions.append(Condition(step.node.test, step.field == "body"))
        conditions += _passed(step.block[: step.position])
    return conditions


def _passed(block: Sequence[ast.stmt]) -> list[Condition]:
    """The conditions for not being turned back by `if …: return`."""
    branches = [statement for statement in block if isinstance(statement, ast.If)]
    turned_back = [Condition(branch.test, False) for branch in branches if ways_out(branch.body)]
    return turned_back + [Condition(branch.test, True) for branch in branches if ways_out(branch.orelse)]
