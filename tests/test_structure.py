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
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other in a circle: {' <- '.join(error.args[1])}")


def test_a_package_of_many_modules_has_folders(graph: grimp.ImportGraph) -> None:
    """Modules lie in folders by concept; folders are not counted."""
    modules = [module for module in graph.modules if not graph.find_children(module)]

    counts = Counter(module.rpartition(".")[0] for module in modules if not module.endswith(".__main__"))

    assert {package: count for package, count in counts.items() if count > MAX_MODULES} == {}
