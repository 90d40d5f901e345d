"""What the code of a user may ask before the first batch of a resumed training, whatever it asks."""

from __future__ import annotations

import inspect
from typing import Any

# They act, or make something, and answer nothing about the training.
ACTIONS = {
    "close",
    "disable_auto_grad_accumulation",
    "disable_dataset_reproducibility_checks",
    "get_tensorboard_writer",
    "save",
    "set_profiler",
    "set_up",
    "shutdown",
    "train",
    "train_pass",
}


def answers(asked: Any) -> dict[str, object]:
    """Returns the answer to each question without arguments, or its error, or the type of what is no plain value."""
    found: dict[str, object] = {}
    for name in dir(asked):
        if name.startswith("_") or name in ACTIONS:
            continue
        try:
            answer = getattr(asked, name)
            if inspect.ismethod(answer) or inspect.isfunction(answer):
                if _needs_arguments(answer):
                    continue
                answer = answer()
        except Exception as error:  # noqa: BLE001 - that is its answer
            answer = f"{type(error).__name__}: {error}"
        found[name] = answer if isinstance(answer, int | float | str | tuple | None) else type(answer).__name__
    return found


def _needs_arguments(function: Any) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters)
