"""Finds the lines of the script, and of its own modules, that draw from a global generator."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_NO_DRAWS = {
    "seed", "getstate", "setstate", "get_state", "set_state", "default_rng", "Random", "SystemRandom", "Generator",
    "RandomState", "SeedSequence", "PCG64", "Philox", "MT19937",
}  # fmt: skip
_OF_TORCH = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal", "bernoulli",
    "multinomial", "poisson",
}  # fmt: skip
_MAX_LINES = 3
_MAX_BYTES = 1 << 20


def drawing_lines(directory: Path) -> dict[str, str]:
    """Returns for each global generator the first lines that draw from it, in modules that lie below the directory.

    Draws from a generator of their own (`generator=…`), and those within libraries, are not seen.
    """
    files = {
        Path(file) for each in list(sys.modules.values()) if isinstance(file := getattr(each, "__file__", None), str)
    }
    found: dict[str, list[str]] = {}
    for file in sorted(each for each in files if each.suffix == ".py" and each.is_relative_to(directory)):
        if file.is_relative_to(sys.prefix) or not file.is_file() or file.stat().st_size > _MAX_BYTES:
            continue
        for generator, line in lines_of_source(file.read_text(errors="replace")):
            found.setdefault(generator, []).append(f"{file.relative_to(directory)}:{line}")
    return {name: ", ".join([*lines[:_MAX_LINES], *["…"][: len(lines) - _MAX_LINES]]) for name, lines in found.items()}


def lines_of_source(source: str) -> list[tuple[str, int]]:
    """Returns each line that draws, and the generator from which it does. Pure."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    names = dict(_imported(tree))
    calls = sorted((each for each in ast.walk(tree) if isinstance(each, ast.Call)), key=lambda each: each.lineno)
    drawn = ((_generator_of(_full_name(each.func, names)), each) for each in calls)
    found = [
        (generator, each.lineno)
        for generator, each in drawn
        if generator and all(keyword.arg != "generator" for keyword in each.keywords)
    ]
    return list(dict.fromkeys(found))


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields the names that imports make, and what they stand for."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            for one in each.names:
                yield (one.asname, one.name) if one.asname else (one.name.partition(".")[0],) * 2
        elif isinstance(each, ast.ImportFrom) and not each.level:
            yield from ((one.asname or one.name, f"{each.module}.{one.name}") for one in each.names)


def _full_name(node: ast.expr, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def _generator_of(name: str) -> str | None:
    owner, _, function = name.rpartition(".")
    if function in _NO_DRAWS:
        return None
    if owner in ("random", "numpy.random"):
        return "Python's generator" if owner == "random" else "NumPy's generator"
    return "torch's generator" if owner == "torch" and function in _OF_TORCH else None
