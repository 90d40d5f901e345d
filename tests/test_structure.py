"""The shape of the house: no circle of imports, and no room with too many modules. Floors are import-linter's."""

from __future__ import annotations

from collections import Counter
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

MAX_MODULES = 15


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("core_sdk", "launch")


def test_no_modules_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    """Not even within a package."""
    circles = set()
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    while circle := _circle(imports):
        circles.add(_common_package(circle))
        imports[circle[0]] = imports[circle[0]] - set(circle)

    assert circles == set()


def test_a_package_of_many_modules_has_folders(graph: grimp.ImportGraph) -> None:
    """Modules lie in folders by concept; folders are not counted."""
    modules = [module for module in graph.modules if not graph.find_children(module)]

    counts = Counter(_package(module) for module in modules if not module.endswith(".__main__"))

    assert [package for package, count in counts.items() if count > MAX_MODULES] == []


def _circle(imports: dict[str, set[str]]) -> list[str]:
    """Modules of which each imports, or is imported by, the next one."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1][:-1])
    return []


def _common_package(modules: list[str]) -> str:
    packages = [module.split(".")[:-1] for module in modules]
    shared = [names[0] for names in zip(*packages, strict=False) if len(set(names)) == 1]
    return ".".join(shared)


def _package(module: str) -> str:
    return module.rpartition(".")[0]
