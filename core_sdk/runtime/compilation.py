"""`torch.compile()` for a model that stays the same object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def compile_in_place(model: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Has calls of the model run its compiled forward pass. Its class, attributes and state do not change.

    `Module.compile()` does the same, but silently skips torch's own modules, such as `nn.Sequential`.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return model._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]

    model._compiled_call_impl = torch.compile(call, **arguments)
