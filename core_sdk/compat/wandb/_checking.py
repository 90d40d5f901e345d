"""Finds the names of wandb that a script uses and `core_sdk.compat.wandb` does not have, before it runs."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from types import ModuleType

from core_sdk.compat.wandb._missing import missing

_OURS = "core_sdk.compat.wandb"


def missing_names(source: str) -> list[tuple[int, str]] | None:
    """Returns the lines that use a missing name, each with what to use instead; None if nothing imports wandb.

    It looks at imports of wandb, or of this module, and at the names behind a dot of what they import. Raises
    `SyntaxError`.
    """
    paths = [(line, path) for line, full_name in _full_names(ast.parse(source)) if (path := _below_wandb(full_name))]
    found = {(line, name) for line, path in paths if (name := _first_missing(path))}
    return [(line, missing(name)) for line, name in sorted(found)] if paths else None


def _full_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields what is imported, and the names behind dots of it, by their full names, with their lines."""
    meant: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
                first = alias.name.partition(".")[0]
                meant[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full_name = f"{node.module}.{alias.name}".removesuffix(".*")
                yield node.lineno, full_name
                meant[alias.asname or alias.name] = full_name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (names := _dotted(node)) and names[0] in meant:
            yield node.lineno, ".".join([meant[names[0]], *names[1:]])


def _dotted(node: ast.expr) -> list[str] | None:
    """Returns the names of `a.b.c`; None for what begins with anything else than a name."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)) is not None:
        return [*before, node.attr]
    return None


def _below_wandb(full_name: str) -> str | None:
    path = "wandb" + full_name.removeprefix(_OURS) if full_name.startswith(_OURS) else full_name
    return path if path.partition(".")[0] == "wandb" else None


def _first_missing(path: str) -> str:
    """Returns the path up to the first name that is not there; empty if all are. It does not look into classes."""
    within = importlib.import_module(_OURS)
    names = path.split(".")
    for count, name in enumerate(names[1:], start=2):
        if name not in dir(within):
            return ".".join(names[:count])
        found = vars(within).get(name)
        if not isinstance(found, ModuleType):
            break
        within = found
    return ""
