"""The shape of the code: no circle of imports, no room with too many modules. Floors are import-linter's."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_MODULES = 15


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("core_sdk", "launch")


def test_no_modules_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    """No modules import each other in a circle."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other in a circle: {' <- '.join(error.args[1])}")


def test_a_package_of_many_modules_has_folders(graph: grimp.ImportGraph) -> None:
    """A package with many modules has folders."""
    modules = [module for module in graph.modules if not graph.find_children(module)]

    counts = Counter(module.rpartition(".")[0] for module in modules if not module.endswith(".__main__"))

    assert {package: count for package, count in counts.items() if count > MAX_MODULES} == {}


# Names of other libraries' interfaces, which their users import from the module that takes the library's place.
_SHARED_CLASS_NAMES = {
    "Audio",  # ours, wandb
    "Checkpoint",  # Determined's client, Ray Train
    "Config",  # Determined's core_v2, wandb
    "CoreSDKCallback",  # ours for Lightning, and for Transformers
    "DownloadMode",  # Determined's Core API, its client
    "Histogram",  # ours, wandb, as the next one
    "Image",
    "RayTrainReportCallback",  # Ray Train for Lightning, and for Transformers
    "Run",  # the master's, wandb
    "Table",  # ours, wandb
    "TorchTrainer",  # Ray Train, RaySGD
    "TrainContext",  # Determined's Core API, Ray Train
    "Trainer",  # Determined for PyTorch, and for DeepSpeed
    "UsageError",  # the launchers', wandb
    "Video",  # ours, wandb
}


def test_no_two_modules_define_a_class_of_one_name() -> None:
    """No two modules define classes of the same name."""
    counts = Counter(
        node.name
        for folder in ("core_sdk", "launchers")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef)
    )

    assert {name for name, count in counts.items() if count > 1} == _SHARED_CLASS_NAMES


def test_test_files_have_names_of_their_own() -> None:
    """Test files have distinct names."""
    counts = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))

    assert [name for name, count in counts.items() if count > 1] == []


def test_what_an_inner_package_exports_is_imported_from_it() -> None:
    """A package exports only what code outside of it imports."""
    inits = {init: ast.parse(init.read_text()) for init in (ROOT / "core_sdk").rglob("__init__.py")}
    exported = {
        (_package(init), name)
        for init, tree in inits.items()
        if "__all__" not in init.read_text()
        for module, name in _imports(tree.body)
        if module.startswith(f"{_package(init)}.")
    }

    used = {
        (module, name)
        for folder in ("core_sdk", "launchers", "tests", "benchmarks")
        for file in (ROOT / folder).rglob("*.py")
        for module, name in _imported_names(file.read_text())
        if not f"{_package(file)}.".startswith(f"{module}.")
    }

    assert sorted(exported - used) == []


def _package(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).parent.parts)


def _imported_names(text: str) -> Iterator[tuple[str, str]]:
    """Yields the module and the name of each `from core_sdk… import …` of a text, which need not be parsed for that."""
    for module, names in re.findall(r"from (core_sdk[\w.]*) import (\([^)]*\)|[^\n]*)", text):
        yield from ((module, name.split()[0]) for name in re.sub(r"#.*|[()]", "", names).split(",") if name.strip())


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yields the module and the name of each `from … import …`."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def _areas() -> list[list[str]]:
    """Returns the layers of areas in `pyproject.toml`, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "areas"]
    return [layer.split(" | ") for layer in layers]


def test_contributors_are_told_the_areas_as_they_are() -> None:
    """CONTRIBUTING.md and docs/architecture.md show the layers of `pyproject.toml` in order."""
    drawn = re.search(r"```\n(_interfaces.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    picture = re.search(r"```\n( +_interfaces.*?)```", (ROOT / "docs/architecture.md").read_text(), re.DOTALL)

    assert drawn is not None
    assert picture is not None
    assert [sorted(re.findall(r"\w+", layer)) for layer in drawn[1].split(">")] == [sorted(each) for each in _areas()]
    left_column = " ".join(line[:40] for line in picture[1].splitlines())
    assert re.findall(r"\w+", left_column) == [name for layer in _areas() for name in layer]


# The packages and modules that users import by name. A further one is a promise: docs/stability.md.
_PUBLIC = {
    "client", "compat", "core", "errors", "experimental", "integrations", "launch", "loop", "media", "pytorch",
    "search", "searcher", "sgd", "testing", "train", "transformers", "util",
}  # fmt: skip


def test_the_top_of_the_package_is_public_or_an_area() -> None:
    """At the top of `core_sdk` stand public packages and private areas, fewer than 30 entries in all."""
    entries = {entry.name.removesuffix(".py") for entry in (ROOT / "core_sdk").iterdir()} - {"__pycache__"}

    assert len(entries) < 30
    assert {name for name in entries if not name.startswith("_")} == _PUBLIC | {"py.typed"}
    assert {name for name in entries if name.startswith("_")} == {
        "__init__",
        *(name for layer in _areas() for name in layer if name.startswith("_")),
    }


def test_one_module_decodes_to_types() -> None:
    """One module decodes to types with msgspec: elsewhere two threads could look up one type at once, and crash."""
    found = set()
    for path in (ROOT / "core_sdk").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            verbs = "decode|Decoder" if any(keyword.arg == "type" for keyword in call.keywords) else "Decoder"
            if re.fullmatch(rf"msgspec\.(convert|\w+\.({verbs}))", ast.unparse(call.func)):
                found.add(str(path.relative_to(ROOT)))

    assert found == {"core_sdk/_ground/decoding.py"}


# Documented in spite of the underscore, or private names of a library that stand in one module each.
_FOREIGN = {"_exit", "_getframe", "_replace", "_asdict", "_fields", "_make", "_repr_html_"} | {
    "_bucket_metadata_cache",  # google-cloud-storage, as the next one
    "_http",
    "_distributed",  # datasets, as the next one
    "_fingerprint",
    "_combined_loader",  # lightning, as the next ones
    "_data_fetcher",
    "_restarting",
    "_results",
    "_save_checkpoint",  # transformers, as the next one
    "_save_rng_state",
    "_BaseDataLoaderIter",  # torch, as the next ones
    "_c10d_init",
    "_call_impl",
    "_compiled_call_impl",
    "_dump_fr_trace_json",
    "_dump_nccl_trace_json",
    "_maybe_wrap_command_args_with_numa_binding",
    "_orig_mod",
    "_version",
    "_current_frames",  # sys
    "_register_atexit",  # threading, as the next one
    "_native_id",
    "_run_module_as_main",  # runpy
    "_forkserver",  # multiprocessing, as the next one
    "_preload_modules",
}


def test_no_module_reads_a_private_name_of_another() -> None:
    """A name that begins with an underscore is read only in the module that defines it."""
    read = [
        f"{file.relative_to(ROOT)}: {name}"
        for folder in ("core_sdk", "launchers")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for name in _foreign_private_names(ast.parse(file.read_text()))
    ]

    assert read == []


def _foreign_private_names(tree: ast.Module) -> list[str]:
    """Returns the private attributes of other objects than `self` that the module does not define.

    They may be named in the code, or in a text, as in `getattr(library, "_name")`.
    """
    own: set[str] = set()
    foreign: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if _is_private(name):
                foreign.add(name)
            case ast.Call(ast.Name("getattr" | "hasattr" | "setattr"), [owner, ast.Constant(str(name)), *_]):
                if _is_private(name) and ast.unparse(owner) not in ("self", "cls"):
                    foreign.add(name)
    return sorted(foreign - own - _FOREIGN)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("code", ["library._name", "getattr(library, '_name', None)", "hasattr(self.library, '_name')"])
def test_a_private_name_is_seen_however_it_is_written(code: str) -> None:
    """Uses of private names are found in attributes and in getattr() calls."""
    assert _foreign_private_names(ast.parse(code)) == ["_name"]


def test_the_map_names_modules_that_exist() -> None:
    """Modules, tests and documents that docs/architecture.md names exist."""
    named = re.findall(r"`((?:core_sdk|launchers|tests|docs)/[\w/.-]+)`", (ROOT / "docs/architecture.md").read_text())

    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []
