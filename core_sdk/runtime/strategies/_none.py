"""A model on one rank, or one copy on each rank without any exchange between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from core_sdk.runtime.strategies._strategy import Strategy, check_replica_options


class NoStrategy(Strategy):
    """Moves the model to the device of its rank."""

    name = "none"

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        check_replica_options(options)
        return model.to(device)

    def set_gradient_sync(self, model: nn.Module, is_on: bool) -> None:
        """Does nothing, since there is nothing to exchange."""


class UntouchedStrategy(NoStrategy):
    """Leaves the model where it is. For a trial that is only loaded."""

    def wrap_model(self, model: nn.Module, device: torch.device, options: Mapping[str, Any]) -> nn.Module:
        return model
