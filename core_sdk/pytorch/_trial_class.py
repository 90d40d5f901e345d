"""Finds a Trial class by its name, `module:Class`."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from core_sdk.pytorch._trial import PyTorchTrial

_SPEC = re.compile(r"[\w.]+:[\w.]+")


class TrialClassError(ValueError):
    """A Trial class, named as `module:Class`, cannot be trained."""

    def __init__(self, spec: str, problem: str) -> None:
        super().__init__(f"cannot train {spec!r}: {problem}.")


def load_trial_class(spec: str) -> type[PyTorchTrial]:
    """Imports the class `module:Class`, or `package.module:Outer.Inner`.

    The module is found by the rules of `import`, in the working directory or among the installed ones. Raises
    `TrialClassError`, and whatever the module itself raises.
    """
    if not _SPEC.fullmatch(spec):
        raise TrialClassError(spec, "a Trial class is written module:Class, as in model_def:MyTrial")
    module_name, _, qualified_name = spec.partition(":")
    found = _import(spec, module_name)
    for name in qualified_name.split("."):
        if not hasattr(found, name):
            raise TrialClassError(spec, f"{module_name} has no {qualified_name}{_others(vars(found))}")
        found = getattr(found, name)
    if not isinstance(found, type) or not issubclass(found, PyTorchTrial):
        raise TrialClassError(spec, f"{qualified_name} is not a subclass of core_sdk.pytorch.PyTorchTrial")
    return found


def _import(spec: str, module_name: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A library that the module imports is missing. Its error says which.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise TrialClassError(
            spec, f"there is no module {error.name} in {Path.cwd()}, and none of this name is installed"
        ) from error


def _others(names: dict[str, object]) -> str:
    """Returns words that name the Trial classes that the module has instead."""
    found = [
        name
        for name, value in names.items()
        if isinstance(value, type) and issubclass(value, PyTorchTrial) and value is not PyTorchTrial
    ]
    return f"; it has {', '.join(found)}" if found else ""
