"""Models that run their forward pass under autocast."""

from __future__ import annotations

import copy
import inspect
import io
from typing import Any

import torch
from torch import nn

from core_sdk._runtime.precision import autocasting
from core_sdk._runtime.strategies import default_strategy
from core_sdk._runtime.torch_runtime import TorchRuntime
from core_sdk.core import DistributedContext

CPU = torch.device("cpu")


class Model(nn.Module):
    """Returns the precision in which it has computed, next to its output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)

    def forward(self, x: torch.Tensor, *, times: int = 1) -> tuple[torch.Tensor, torch.dtype]:
        y = times * self.layer(x)
        return y, y.dtype


def model_of(weight: float) -> Any:
    model = autocasting(Model(), CPU)
    assert isinstance(model, Model)
    nn.init.constant_(model.layer.weight, weight)
    return model


def test_a_model_computes_in_half_precision_and_returns_float32() -> None:
    """A model computes in half precision and returns float32; it keeps its class, signature and state."""
    model = model_of(2.0)

    y, computed_in = model(torch.ones(1, 1), times=3)

    assert (y.item(), y.dtype, computed_in) == (6.0, torch.float32, torch.bfloat16)
    assert type(model) is Model
    assert inspect.signature(model.forward) == inspect.signature(Model().forward)
    assert list(model.state_dict()) == ["layer.weight"]


def test_a_model_that_is_given_twice_is_changed_once() -> None:
    """A model that is given twice is wrapped once."""
    model = model_of(2.0)
    forward = model.forward

    assert autocasting(model, CPU).forward is forward


def test_a_copy_of_a_model_computes_with_its_own_weights() -> None:
    """A copy of a model, such as one of averaged weights, computes with its own weights."""
    model = model_of(2.0)

    twin = copy.deepcopy(model)
    nn.init.constant_(twin.layer.weight, 5.0)

    assert [each(torch.ones(1, 1))[0].item() for each in (model, twin)] == [2.0, 5.0]
    assert twin(torch.ones(1, 1))[1] == torch.bfloat16


def test_a_model_can_be_pickled() -> None:
    """A model can be saved by `torch.save(model)`, and computes in half precision when it is loaded."""
    file = io.BytesIO()
    torch.save(model_of(2.0), file)
    file.seek(0)

    read = torch.load(file, weights_only=False)

    nn.init.constant_(read.layer.weight, 5.0)
    y, computed_in = read(torch.ones(1, 1))
    assert (y.item(), computed_in) == (5.0, torch.bfloat16)


def test_a_model_can_be_compiled_as_one_graph() -> None:
    """A model with autocast can be compiled as one graph."""
    compiled: Any = torch.compile(model_of(2.0), backend="eager", fullgraph=True)

    y, _ = compiled(torch.ones(1, 1))

    assert (y.item(), y.dtype) == (2.0, torch.float32)


def test_a_training_without_scaled_losses_goes_on_with_them() -> None:
    """A scaler that scales begins from nothing after a checkpoint of one that does not, as after a move to a GPU."""

    def runtime_of(*, is_scaling: bool) -> TorchRuntime:
        ranks = DistributedContext()
        runtime = TorchRuntime(ranks, CPU, default_strategy(ranks))
        runtime.precision.register(torch.amp.GradScaler("cpu", init_scale=8.0, enabled=is_scaling))
        return runtime

    runtime = runtime_of(is_scaling=True)
    runtime.load_state_dict(runtime_of(is_scaling=False).state_dict(), {"models", "optimizers", "lr_schedulers"})

    assert runtime.precision.scaler.get_scale() == 8
