"""The list of all names that users may import: what has no underscore anywhere in its path.

`python tests/test_public_list.py` writes the list again. A name that is added to it is a promise, and a name that goes
from it is one that is broken: docs/stability.md.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("public_names.txt")


def test_the_public_names_are_those_of_the_list() -> None:
    """Every name in a module without an underscore in its path is in the list, and the list has no other."""
    assert _public_names() == LIST.read_text().splitlines()


def _public_names() -> list[str]:
    modules = [
        file
        for file in (ROOT / "core_sdk").rglob("*.py")
        if not any(part.startswith("_") for part in file.relative_to(ROOT / "core_sdk").with_name(_name(file)).parts)
    ]
    return sorted(f"{_path(file)}.{name}" for file in modules for name in _names(ast.parse(file.read_text())))


def _name(file: Path) -> str:
    return "package" if file.name == "__init__.py" else file.name


def _path(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _names(module: ast.Module) -> list[str]:
    """Returns the names in `__all__`, or what the module defines under names without an underscore."""
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return [name for node in module.body for name in _defined(node) if not name.startswith("_") and name != "logger"]


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in _public_names()))
