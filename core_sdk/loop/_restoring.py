"""Loads the part of a checkpoint that belongs to one object, if it fits the object."""

from __future__ import annotations

from typing import Any, cast

import torch

from core_sdk.errors import StateMismatchError


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """Returns the module within DistributedDataParallel and `torch.compile`, so that names do not depend on these."""
    while True:
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            module = module.module
        elif hasattr(module, "_orig_mod"):
            module = cast(torch.nn.Module, module._orig_mod)
        else:
            return module


def load_object(name: str, target: Any, state: Any) -> None:
    """Makes `target` load its `state`. Raises `StateMismatchError` with `name`, the script's name of the object."""
    if isinstance(target, torch.optim.Optimizer) and (found := _optimizer_differences(target.state_dict(), state)):
        raise StateMismatchError(repr(name), found)
    if not isinstance(target, torch.nn.Module):
        target.load_state_dict(state)
        return
    module = unwrapped(target)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise StateMismatchError(repr(name), _module_differences(module.state_dict(), state) or [str(error)]) from error


def _module_differences(own: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    shapes = {
        key: [_size(getattr(value, "shape", None)) for value in (stored[key], own[key])] for key in own if key in stored
    }
    return [
        *(f"{key} is {old} in the checkpoint and {new} here" for key, (old, new) in shapes.items() if old != new),
        *(f"the checkpoint has no {key}" for key in own if key not in stored),
        *(f"the checkpoint also has {key}" for key in stored if key not in own),
    ]


def _size(shape: torch.Size | None) -> str:
    return "no tensor" if shape is None else "x".join(map(str, shape)) or "a scalar"


def _optimizer_differences(own: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    groups, stored_groups = own["param_groups"], stored["param_groups"]
    if len(groups) != len(stored_groups):
        return [f"it has {len(stored_groups)} groups of parameters in the checkpoint and {len(groups)} here"]
    return [
        difference
        for i, (group, stored_group) in enumerate(zip(groups, stored_groups, strict=True))
        for difference in _group_differences(i, group, stored_group)
    ]


def _group_differences(index: int, group: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    differences = []
    size, stored_size = len(group["params"]), len(stored["params"])
    if size != stored_size:
        differences.append(f"its group {index} has {stored_size} parameters in the checkpoint and {size} here")
    added, missing = group.keys() - stored.keys(), stored.keys() - group.keys()
    # Another version of torch may only add options to an optimizer. Another optimizer also lacks some.
    if added and missing:
        differences.append(
            f"it is another optimizer, with the options {', '.join(sorted(missing))} instead of "
            f"{', '.join(sorted(added))}"
        )
    return differences
