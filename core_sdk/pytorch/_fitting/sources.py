"""The user's own code, which is kept with each checkpoint."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from core_sdk._ground.importing import file_of, is_of_library


def entrypoint(kind: type[Any]) -> str:
    """Returns `module:Class`, by which the class can be imported again. A script counts as the module of its name."""
    module = kind.__module__
    if module == "__main__":
        module = Path(getattr(sys.modules[module], "__file__", None) or "").stem
    return f"{module}:{kind.__qualname__}"


def imported_sources(kind: type[Any]) -> dict[str, Path]:
    """Returns the files of all imported modules that are below the directory of the class, by their relative names.

    Returns none for a class of a notebook or of an installed package.
    """
    module = sys.modules[kind.__module__]
    file = _file(module)
    if file is None or is_of_library(file) or not Path(file).is_file():
        return {}
    depth = 0 if module.__name__ == "__main__" else module.__name__.count(".") + (Path(file).stem == "__init__")
    root = Path(file).parents[depth]
    files = {_file(each) for each in list(sys.modules.values())}
    own = sorted(found for found in files if found and found.startswith(f"{root}{os.sep}") and not is_of_library(found))
    # A file may have been removed since it was imported.
    return {str(path.relative_to(root)): path for path in map(Path, own) if path.is_file()}


def _file(module: ModuleType) -> str | None:
    file = file_of(module)
    return file if file and file.endswith(".py") else None
