"""Models that are compiled as they are wrapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from pytorch.ranks import Ranks
from pytorch.trials import LineTrial, StopAfter, fixed_seed
from torch import fx, nn
from torch.distributed.tensor import DTensor

from core_sdk.pytorch import Batch, PyTorchTrialContext, Trainer, init


class Graphs:
    """A backend of `torch.compile()` that counts what it is given."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        self.count += 1
        return graph.forward


class CompiledTrial(LineTrial):
    def __init__(self, context: PyTorchTrialContext, compile: bool | Mapping[str, Any]) -> None:
        self.compile = compile
        super().__init__(context)

    def wrapped_model(self) -> nn.Module:
        return self.context.wrap_model(self.make_model(), compile=self.compile)


def train(job: str, compile: bool | Mapping[str, Any], *, stops: bool = False) -> CompiledTrial:
    with init(job_id=job) as context:
        fixed_seed(context)
        trial = CompiledTrial(context, compile)
        if stops:
            trial.callbacks = {"stop": StopAfter(2)}
        Trainer(trial, context).fit(max_length=Batch(5), validation_period=Batch(2))
        return trial


class OwnModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layers(inputs)


@pytest.mark.parametrize(
    "model", [OwnModel(), nn.Sequential(nn.Linear(2, 1)), nn.Linear(2, 1)], ids=lambda model: type(model).__name__
)
def test_a_model_is_compiled_with_the_given_arguments(model: nn.Module) -> None:
    """A wrapped model is compiled by the given backend and returns the same output."""
    graphs = Graphs()

    with init() as context:
        wrapped = context.wrap_model(model, compile={"backend": graphs})
        output = wrapped(torch.ones(1, 2))

    assert graphs.count == 1
    assert torch.equal(output, model.forward(torch.ones(1, 2)))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_model_on_several_ranks_is_compiled(ranks: Ranks, strategy: str) -> None:
    """A model on several ranks is compiled together with DDP or FSDP."""
    ranks.run(trains_compiled, 2, strategy)


def trains_compiled(strategy: str) -> None:
    graphs = Graphs()
    with init() as context:
        model = context.wrap_model(OwnModel(), strategy=strategy, compile={"backend": graphs})
        torch.manual_seed(context.distributed.rank)
        model(torch.randn(3, 2)).sum().backward()
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        whole = [each.full_tensor() if isinstance(each, DTensor) else each for each in gradients]
        same = context.distributed.allgather([each.tolist() for each in whole])

    assert graphs.count >= 1
    assert len(whole) == 4
    assert same[0] == same[1]


def test_the_names_in_the_state_are_those_of_the_model() -> None:
    """State names are the same with and without compilation."""
    with init() as context:
        wrapped = context.wrap_model(nn.Linear(2, 1), compile={"backend": "eager"})

    assert list(wrapped.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize("compiles_again", [True, False])
def test_a_compiled_training_goes_on_as_if_it_had_never_been_stopped(compiles_again: bool) -> None:
    """A compiled training that was stopped resumes exactly, also without compilation."""
    compiled = {"backend": "aot_eager"}
    whole = train("whole", compiled)
    first = train("stopped", compiled, stops=True)

    second = train("stopped", compiled if compiles_again else False)

    assert len(first.trained) == 3
    assert first.trained + second.trained == whole.trained
    torch.testing.assert_close(second.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_what_compile_must_be_is_said() -> None:
    """`compile` must be a bool or a dict of arguments."""
    with init() as context, pytest.raises(TypeError, match="compile is 'max-autotune'; it must be True, False, or a"):
        context.wrap_model(nn.Linear(2, 1), compile="max-autotune")  # type: ignore[arg-type]
