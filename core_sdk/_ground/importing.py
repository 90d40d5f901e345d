"""Imports modules on first use, and the code that was stored with a checkpoint next to the code that is running.

It also says from which files the running modules come, and which of them another process may import ahead.

`sys.modules` holds only one module of a name. While `import_from_path` is open, modules whose names are in the path are
therefore taken out. At the end they replace those from the path, which live on while something refers to them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from core_sdk.errors import MissingDependencyError


def lazy_names(
    package: str, modules: Mapping[str, str], names: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a package, some of whose `names` are imported when they are first used.

    `modules` has the module of the package in which each of these is found. A name that needs torch raises
    `MissingDependencyError` where there is none.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needing_torch(f"{package}.{name}"):
            return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return get, lambda: sorted(names)


@contextlib.contextmanager
def needing_torch(purpose: str) -> Iterator[None]:
    """Raises `MissingDependencyError` in place of the error of Python if torch is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError("torch", "torch", purpose) from error


_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD_LIBRARY = os.__file__.removesuffix("os.py")


def file_of(module: ModuleType) -> str | None:
    """Returns the file from which a module was imported; None for one that has none."""
    # Not by getattr, which would load a module that is loaded lazily.
    # Nor by isinstance: a library of cffi says that it is a module, and has no `__dict__`.
    is_module = issubclass(type(module), ModuleType)
    file = object.__getattribute__(module, "__dict__").get("__file__") if is_module else None
    # Some modules have a made-up name there.
    return file if isinstance(file, str) and file.startswith(os.sep) else None


def is_of_library(file: str) -> bool:
    """Returns whether a file belongs to the environment: the standard library, or an installed package."""
    return any(f"{os.sep}{name}{os.sep}" in file for name in _LIBRARIES) or file.startswith(_STANDARD_LIBRARY)


# What importing them does depends on nothing but the environment: not on the directory, nor on arguments. They start no
# thread of Python's, and use no GPU.
_PRELOADABLE = frozenset(
    {
        "PIL",
        "accelerate",
        "einops",
        "lightning",
        "numpy",
        "pandas",
        "pytorch_lightning",
        "safetensors",
        "scipy",
        "sklearn",
        "timm",
        "torch",
        "torchaudio",
        "torchmetrics",
        "torchvision",
        "tqdm",
        "transformers",
    }
)

# Private, and imported by torch at the first step of an optimizer: a second of it is its import of sympy.
_PRELOADABLE_PARTS = frozenset({"torch._dynamo"})


def preloadable(modules: Mapping[str, ModuleType]) -> list[str]:
    """Returns the names of imported modules that another process may import ahead, in the order of their import.

    Private modules of other libraries are left out: the public ones import them, but for those that a library imports
    when it is first used. So is what a directory of the user's has under the name of a library.
    """
    return [name for name, module in list(modules.items()) if _is_preloadable(name, module)]


def _is_preloadable(name: str, module: ModuleType) -> bool:
    package, *inner = name.split(".")
    if package == "core_sdk":
        return True
    file = file_of(module) if package in _PRELOADABLE else None
    is_public = name in _PRELOADABLE_PARTS or not any(part.startswith("_") for part in inner)
    return file is not None and is_public and any(f"{os.sep}{place}{os.sep}" in file for place in _LIBRARIES)


# One lock for the whole process, which has one `sys.path` and one `sys.modules`.
_is_active = threading.Lock()


@contextlib.contextmanager
def import_from_path(path: str | os.PathLike[str]) -> Iterator[None]:
    """Makes `import` look first in the directory `path` while open, also for names that are imported already.

        with import_from_path(checkpoint_dir / "code"):
            import model_def

    Loaded modules whose name `path` has, too, and modules of the current directory are taken out of `sys.modules` until
    the end. No byte-code is written. At the end all modules from `path` are taken out, with their sub-modules, so that
    another `path` may have other versions.

    Changes the whole process. Raises `RuntimeError` if another `import_from_path` is open in any thread, and
    `NotADirectoryError` if `path` is not a directory.
    """
    root = Path(path).absolute()
    if not root.is_dir():
        raise NotADirectoryError(f"import_from_path: {root} is not a directory")
    if not _is_active.acquire(blocking=False):
        raise RuntimeError("import_from_path is open already, here or in another thread; close it first")
    try:
        with _search_path_beginning_with(root), _modules_aside(root), _no_bytecode():
            yield
    finally:
        _is_active.release()


@contextlib.contextmanager
def _search_path_beginning_with(root: Path) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:] = [str(root), *(entry for entry in before if entry != "")]
    # The import system may remember the directory as it was before it was filled.
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


@contextlib.contextmanager
def _modules_aside(root: Path) -> Iterator[None]:
    root, here = root.resolve(), Path.cwd().resolve()
    # Modules from a virtual environment in the directory, for example, do not belong to the directory.
    others = [entry for entry in map(_real, sys.path) if entry != root and entry.is_relative_to(root)]
    hidden = {name for name in _top_level_names() if _is_plain_module_in(here, name) or _is_found_in(root, name)}
    aside = {name: module for name, module in sys.modules.items() if _top_level(name) in hidden}
    _forget(aside)
    staying = dict(sys.modules)
    try:
        yield
    finally:
        imported = [name for name, module in sys.modules.items() if staying.get(name) is not module]
        passing = {name for name in imported if "." not in name and _is_from(root, others, name)}
        _forget([name for name in imported if _top_level(name) in passing])
        sys.modules.update(aside)


def _top_level_names() -> set[str]:
    """Returns the loaded modules that may be taken out: all but the script, the standard library and Core SDK."""
    return {
        name
        for name in map(_top_level, sys.modules)
        if name not in sys.stdlib_module_names and name not in ("__main__", "__mp_main__", _top_level(__name__))
    }


def _top_level(name: str) -> str:
    return name.partition(".")[0]


def _forget(names: Iterable[str]) -> None:
    for name in names:
        del sys.modules[name]


def _is_plain_module_in(directory: Path, name: str) -> bool:
    return not _packages(name) and any(file.parent == directory for file in _files(name))


def _is_found_in(root: Path, name: str) -> bool:
    spec = PathFinder.find_spec(name, [str(root)])
    # A directory without __init__.py counts only if the loaded module is a namespace, too.
    return spec is not None and (spec.loader is not None or not _files(name))


def _is_from(root: Path, others: Sequence[Path], name: str) -> bool:
    places = [*_packages(name), *_files(name)]
    if any(place.parent == root for place in places):
        return True
    return any(place.is_relative_to(root) and not any(map(place.is_relative_to, others)) for place in places)


def _files(name: str) -> list[Path]:
    file = _attributes(name).get("__file__")
    return [_real(file)] if isinstance(file, str) else []


def _packages(name: str) -> list[Path]:
    """Returns the directories of a package. A namespace may have several."""
    return [_real(portion) for portion in _attributes(name).get("__path__", ()) if isinstance(portion, str)]


def _attributes(name: str) -> dict[str, Any]:
    module = sys.modules.get(name)
    # Not by getattr, which would load a module that is loaded lazily.
    return object.__getattribute__(module, "__dict__") if isinstance(module, ModuleType) else {}


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))
