"""A context wraps models, optimizers and schedulers, and makes gradients and steps of them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch.trials import LineTrial
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from core_sdk import core, pytorch
from core_sdk._runtime.strategies import default_strategy
from core_sdk.errors import SeveralRanksError
from core_sdk.pytorch import LRScheduler
from core_sdk.pytorch._context import run_of

EVERY_EPOCH = LRScheduler.StepMode.STEP_EVERY_EPOCH
MANUAL = LRScheduler.StepMode.MANUAL_STEP


@pytest.fixture
def context() -> Iterator[pytorch.PyTorchTrialContext]:
    with pytorch.init(hparams={"global_batch_size": 8, "lr": 0.1}) as context:
        yield context


def line(context: pytorch.PyTorchTrialContext, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Returns a wrapped model with one weight, which is 0, and its wrapped optimizer, whose learning rate is 1."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    wrapped = context.wrap_model(model, **options)
    return wrapped, context.wrap_optimizer(torch.optim.SGD(wrapped.parameters(), lr=1.0))


def train(context: pytorch.PyTorchTrialContext, model: nn.Module, num_batches: int, **step: Any) -> list[float]:
    """Batches whose gradients are 1, 2, 3, …; returns the weight after each."""
    weights, runtime = [], run_of(context).runtime
    for index in range(num_batches):
        runtime.begin_batch(index, is_first=index == 0)
        context.backward(model(torch.full((1, 1), float(index + 1))).sum())
        context.step_optimizer(context.optimizers[0], **step)
        runtime.end_batch(index + 1, index // 5 + 1 if index % 5 == 4 else None)
        weights.append(next(model.parameters()).item())
    return weights


def test_a_batch_makes_a_step_and_clears_its_gradients(context: pytorch.PyTorchTrialContext) -> None:
    """step_optimizer() makes a step and clears the gradients."""
    model, _ = line(context)

    assert train(context, model, 3) == [-1, -3, -6]
    assert next(model.parameters()).grad is None


def test_what_is_wrapped_is_listed_in_order(context: pytorch.PyTorchTrialContext) -> None:
    """Wrapped models and optimizers are listed in order."""
    generator, discriminator = context.wrap_model(nn.Linear(1, 2)), context.wrap_model(nn.Linear(2, 1))
    optimizers = [
        context.wrap_optimizer(torch.optim.SGD(each.parameters(), 0.1)) for each in (generator, discriminator)
    ]

    assert context.models == [generator, discriminator]
    assert context.optimizers == optimizers


def test_gradients_of_several_batches_are_averaged_for_one_step() -> None:
    """With an aggregation frequency of 4, gradients of four batches are averaged for one step."""
    with pytorch.init(aggregation_frequency=4) as context:
        model, _ = line(context)

        weights = train(context, model, 10)

        assert weights == [0, 0, 0, -2.5, -2.5, -2.5, -2.5, -9, -9, -9]
        assert next(model.parameters()).grad == 9 + 10


def test_gradients_can_be_summed_instead() -> None:
    """average_aggregated_gradients=False sums the gradients."""
    with pytorch.init(aggregation_frequency=2) as context:
        model = context.wrap_model(nn.Linear(1, 1, bias=False))
        nn.init.zeros_(model.weight)  # type: ignore[arg-type]
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        context.wrap_optimizer(optimizer, average_aggregated_gradients=False)

        assert train(context, model, 2) == [0, -3]


def test_gradients_are_clipped_before_the_step(context: pytorch.PyTorchTrialContext) -> None:
    """clip_grads is applied before the step."""
    model, _ = line(context)

    weights = train(context, model, 2, clip_grads=lambda parameters: nn.utils.clip_grad_value_(parameters, 0.5))

    assert weights == [-0.5, -1]


def test_a_trial_may_clear_gradients_itself(context: pytorch.PyTorchTrialContext) -> None:
    """With auto_zero_grads=False gradients add up until the trial clears them."""
    model, optimizer = line(context)

    weights = train(context, model, 3, auto_zero_grads=False)

    assert weights == [-1, -4, -10]
    optimizer.zero_grad()
    assert next(model.parameters()).grad is None


@pytest.mark.parametrize(
    ("mode", "frequency", "steps"),
    [
        (LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP, 1, 6),
        (LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP, 2, 3),
        (LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP, 3, 2),
        (LRScheduler.StepMode.STEP_EVERY_BATCH, 1, 24),
        (LRScheduler.StepMode.STEP_EVERY_BATCH, 5, 4),
        (EVERY_EPOCH, 1, 5),
        (EVERY_EPOCH, 2, 2),
        (MANUAL, 1, 0),
    ],
)
def test_a_scheduler_steps_as_often_as_its_mode_says(mode: LRScheduler.StepMode, frequency: int, steps: int) -> None:
    """A scheduler steps after every optimizer step, batch or epoch, as its mode and frequency say."""
    with pytorch.init(aggregation_frequency=4) as context:
        model, optimizer = line(context)
        scheduler = context.wrap_lr_scheduler(LambdaLR(optimizer, lambda step: 1 / (1 + step)), mode, frequency)

        train(context, model, 26)

        assert scheduler.last_epoch == steps


def test_a_batch_scheduler_follows_the_batches_of_all_windows() -> None:
    """A scheduler for every batch steps once for each batch of an accumulation window."""
    with pytorch.init(aggregation_frequency=2) as context:
        model, optimizer = line(context)
        scheduler = LambdaLR(optimizer, lambda step: 10**-step)
        context.wrap_lr_scheduler(scheduler, LRScheduler.StepMode.STEP_EVERY_BATCH)

        assert train(context, model, 4) == pytest.approx([0, -1.5, -1.5, -1.535])


def test_a_scheduler_keeps_its_state(context: pytorch.PyTorchTrialContext) -> None:
    """A wrapped scheduler has the state of torch's scheduler."""
    model, optimizer = line(context)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    context.wrap_lr_scheduler(scheduler, EVERY_EPOCH)
    (wrapped,) = context.lr_schedulers

    train(context, model, 5)

    assert wrapped.state_dict() == scheduler.state_dict()
    assert wrapped.get_last_lr() == [0.5]


def test_mixed_precision_on_a_cpu_computes_in_bfloat16_and_returns_float32(
    context: pytorch.PyTorchTrialContext,
) -> None:
    """Mixed precision on a CPU computes in bfloat16 and returns float32, without a scaler."""
    seen: list[torch.dtype] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            y = self.layer(x)
            seen.append(y.dtype)
            return {"y": y, "all": [y, (y, 3)]}

    context.experimental.use_amp()
    model = context.wrap_model(Model())
    context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    twin = copy.deepcopy(model)

    outputs, _ = model(torch.ones(1, 2)), twin(torch.ones(1, 2))

    assert isinstance(model, Model)
    assert seen == [torch.bfloat16, torch.bfloat16]
    assert [outputs["y"].dtype, outputs["all"][0].dtype, outputs["all"][1][0].dtype] == [torch.float32] * 3
    assert outputs["all"][1][1] == 3
    context.backward(outputs["y"].sum())
    context.step_optimizer(context.optimizers[0])
    assert list(model.state_dict()) == ["layer.weight", "layer.bias"]


def test_losses_are_scaled_and_gradients_unscaled_before_they_are_clipped(context: pytorch.PyTorchTrialContext) -> None:
    """Losses are scaled, gradients are unscaled before clipping, and the scaler is updated once."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    run_of(context).runtime.precision.scale_by(context.wrap_scaler(scaler))
    model, _ = line(context)
    clipped: list[float] = []

    weights = train(context, model, 2, clip_grads=lambda parameters: clipped.append(parameters[0].grad.item()))

    assert clipped == [1, 2]
    assert weights == [-1, -3]
    assert scaler.get_scale() == 2048


def test_a_trial_may_use_a_scaler_of_its_own(context: pytorch.PyTorchTrialContext) -> None:
    """A trial may pass its own scaler, which it updates itself."""
    scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=1024.0))
    model, optimizer = line(context)

    context.backward(scaler.scale(model(torch.ones(1, 1)).sum()))
    context.step_optimizer(optimizer, scaler=scaler)
    scaler.update()

    assert next(model.parameters()) == -1
    assert run_of(context).runtime.precision.scaler is scaler


def test_apex_becomes_mixed_precision_of_torch(context: pytorch.PyTorchTrialContext) -> None:
    """configure_apex_amp() uses torch's mixed precision with a warning."""
    model, optimizer = line(context)

    with pytest.warns(FutureWarning, match=r"experimental.use_amp\(\)"):
        configured = context.configure_apex_amp(model, optimizer, opt_level="O2", loss_scale="dynamic")

    assert configured == (model, optimizer)
    assert run_of(context).runtime.precision.scaler is not None
    assert model(torch.ones(1, 1)).dtype == torch.float32
    with pytest.raises(ValueError, match="opt_level is 'O3'"):
        context.configure_apex_amp(model, optimizer, opt_level="O3")
    assert context.configure_apex_amp(model, optimizer, enabled=False) == (model, optimizer)


def test_a_profiler_writes_its_traces_where_tensorboard_looks(context: pytorch.PyTorchTrialContext) -> None:
    """The torch profiler writes its traces into TensorBoard's directory."""
    context.set_profiler(activities=[torch.profiler.ProfilerActivity.CPU])

    with context.profiler:
        torch.ones(1) + 1

    assert list(context.get_tensorboard_path().glob("*.pt.trace.json"))


def test_a_profiler_follows_the_batches_of_a_training() -> None:
    """The torch profiler runs during fit() and steps after each batch."""
    stepped: list[int] = []

    with pytorch.init() as context:
        trial = LineTrial(context)
        context.set_profiler(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=lambda step: stepped.append(step) or torch.profiler.ProfilerAction.NONE,  # type: ignore[func-returns-value]
        )
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(2))

    assert stepped == [0, 1, 2]


def test_trials_that_turn_event_files_off_are_taken_as_they_are() -> None:
    """Event file logging can be turned off and on by the argument or later."""
    with pytorch.init(enable_tensorboard_logging=False) as context:
        assert not context.get_enable_tensorboard_logging()
        context.set_enable_tensorboard_logging(True)
        assert context.get_enable_tensorboard_logging()


def test_a_tensorboard_writer_is_made_on_demand_and_closed_at_the_end() -> None:
    """The TensorBoard writer is made on demand, writes to the trial's directory and is closed at the end."""
    with pytorch.init() as context:
        writer = context.get_tensorboard_writer()
        assert context.get_tensorboard_writer() is writer
        writer.add_scalar("mine", 1.0, 0)
        path = context.get_tensorboard_path()

    assert any(b"mine" in file.read_bytes() for file in path.glob("events.out*"))


def test_batch_sizes_are_divided_among_the_ranks(caplog: pytest.LogCaptureFixture) -> None:
    """The global batch size is divided among the ranks, rounded down with a warning."""
    from core_sdk.pytorch._context import split_batch_size

    assert split_batch_size(32, 4) == (32, 8)
    assert caplog.messages == []
    assert split_batch_size(34, 4) == (32, 8)
    assert "34, which is no multiple of the 4 ranks" in caplog.text
    with pytest.raises(ValueError, match="it must be at least 4, the number of ranks"):
        split_batch_size(3, 4)
    with pytest.raises(ValueError, match="global_batch_size is None; it must be a whole number"):
        split_batch_size(None, 1)


def test_hyperparameters_and_configuration_are_at_hand(
    context: pytorch.PyTorchTrialContext, caplog: pytest.LogCaptureFixture
) -> None:
    """Hyperparameters are available, and a missing one is named with those that exist."""
    assert context.get_hparam("lr") == 0.1
    assert context.get_hparams() == {"global_batch_size": 8, "lr": 0.1}
    assert (context.get_global_batch_size(), context.get_per_slot_batch_size()) == (8, 8)
    with pytest.raises(ValueError, match="no hyperparameter 'momentum'; there are: global_batch_size, lr"):
        context.get_hparam("momentum")
    with pytest.raises(ValueError, match=r"pass exp_conf to pytorch.init"):
        context.get_experiment_config()
    with caplog.at_level(logging.WARNING):
        assert context.get_hparam("global_batch_size") == 8
    assert "get_per_slot_batch_size" in caplog.text
    assert (context.get_trial_id(), context.get_experiment_id()) == (1, 1)
    assert context.get_initial_batch() == 0


def test_the_configuration_given_is_the_one_asked_for() -> None:
    """The experiment configuration that is passed, with its section `data`, is available."""
    with pytorch.init(exp_conf={"name": "digits", "data": {"url": "here"}}) as context:
        assert context.get_experiment_config()["name"] == "digits"
        assert context.get_data_config() == {"url": "here"}
        with pytest.raises(ValueError, match=r"pass hparams to pytorch.init"):
            context.get_hparams()


def test_the_position_is_known_once_there_is_one(context: pytorch.PyTorchTrialContext) -> None:
    """The position is an error before the first batch and is known afterwards."""
    with pytest.raises(RuntimeError, match="no batch has been trained yet"):
        context.is_epoch_start()

    position = run_of(context).position
    position.batch, position.epoch, position.is_epoch_end = 7, 1, True

    assert (context.current_train_batch(), context.current_train_epoch()) == (7, 1)
    assert (context.is_epoch_start(), context.is_epoch_end()) == (False, True)


def test_a_stop_can_be_asked_for(context: pytorch.PyTorchTrialContext) -> None:
    """set_stop_requested() accepts only a boolean."""
    assert not context.get_stop_requested()
    context.set_stop_requested(True)
    assert context.get_stop_requested()
    with pytest.raises(TypeError, match="must be True or False"):
        context.set_stop_requested("yes")  # type: ignore[arg-type]


def test_random_numbers_follow_from_the_seed_of_the_trial() -> None:
    """A script that is started again draws the same, until there is a checkpoint."""
    import random

    import numpy as np

    def draws() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), torch.rand(1).item()

    with pytorch.init() as context:
        first, seed = draws(), context.get_trial_seed()
    from core_sdk.loop import _rng as rng

    rng.seed_all(seed)
    assert draws() == first


def test_two_trainings_of_one_seed_are_the_same() -> None:
    """Trainings with equal seeds are equal, and a resumed trial keeps its seed."""

    def trained(seed: int, num_batches: int, job_id: str) -> list[Any]:
        with pytorch.init(seed=seed, job_id=job_id) as context:
            trial = LineTrial(context)
            pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(num_batches))
        return trial.trained

    first, second, other = trained(7, 6, "first"), trained(7, 6, "second"), trained(8, 6, "other")
    interrupted = trained(7, 2, "interrupted") + trained(9, 6, "interrupted")

    assert first == second == interrupted
    assert first != other


def test_a_context_can_be_given_its_ranks() -> None:
    """A context accepts a DistributedContext of one rank."""
    with pytorch.init(distributed=core.DistributedContext()) as context:
        assert context.distributed.size == 1
        assert context.device == torch.device("cpu")


def test_ranks_that_cannot_come_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ranks without a launcher that we know are refused."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")

    with pytest.raises(SeveralRanksError, match="2 ranks were started"), pytorch.init():
        pass


def test_ranks_without_anything_that_averages_gradients_are_refused() -> None:
    """Several ranks without torch.distributed or Horovod are refused, since gradients must be averaged."""
    with pytest.raises(
        RuntimeError, match=r"call torch\.distributed\.init_process_group\(\) or horovod\.torch\.init\(\)"
    ):
        default_strategy(SimpleNamespace(size=2))  # type: ignore[arg-type]


def test_only_a_module_is_wrapped(context: pytorch.PyTorchTrialContext) -> None:
    """wrap_model() refuses anything but a torch Module."""
    with pytest.raises(TypeError, match=r"wrap_model\(\) takes a torch\.nn\.Module, not builtin"):
        context.wrap_model(torch.relu)  # type: ignore[arg-type]


def test_nothing_is_wrapped_twice(context: pytorch.PyTorchTrialContext) -> None:
    """A model or optimizer that is already wrapped is refused."""
    model, optimizer = line(context)
    with pytest.raises(ValueError, match="this Linear is wrapped already"):
        context.wrap_model(model)
    with pytest.raises(ValueError, match="this SGD is wrapped already"):
        context.wrap_optimizer(optimizer)


def test_an_unknown_option_of_a_model_is_refused(context: pytorch.PyTorchTrialContext) -> None:
    """An unknown option of wrap_model() is refused, also on one rank."""
    line(context, find_unused_parameters=True)
    with pytest.raises(TypeError, match=r"no option find_unused; .* find_unused_parameters"):
        line(context, find_unused=True)
    with pytest.raises(ValueError, match="strategy is 'dpp'"):
        line(context, strategy="dpp")


def test_an_optimizer_that_is_not_wrapped_is_refused(context: pytorch.PyTorchTrialContext) -> None:
    """An optimizer that is not wrapped is refused by schedulers and steps."""
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"build the scheduler with what context.wrap_optimizer\(\) returns"):
        context.wrap_lr_scheduler(LambdaLR(optimizer, lambda step: 1.0), EVERY_EPOCH)
    with pytest.raises(ValueError, match=r"pass step_optimizer\(\) what context.wrap_optimizer\(\) returned"):
        context.step_optimizer(optimizer)
    with pytest.raises(TypeError, match=r"takes a torch.optim.Optimizer, not dict"):
        context.wrap_optimizer({})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backward_passes_per_step is 0"):
        context.wrap_optimizer(optimizer, backward_passes_per_step=0)


def test_an_optimizer_of_other_models_is_refused(
    context: pytorch.PyTorchTrialContext, caplog: pytest.LogCaptureFixture
) -> None:
    """An optimizer of unwrapped models is refused; single foreign parameters cause a warning."""
    trial = LineTrial(context)
    own, other = trial.model.parameters(), nn.Parameter(torch.zeros(1))
    context.wrap_optimizer(torch.optim.SGD([*own, other], lr=0.1))
    run_of(context).runtime.check("LineTrial")
    assert "1 parameters of the SGD belong to no wrapped model" in caplog.text

    context.wrap_optimizer(torch.optim.Adam(nn.Linear(1, 1).parameters()))

    with pytest.raises(ValueError, match=r"no parameter of the Adam belongs to a wrapped model: call wrap_model\(\)"):
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(1))


def test_a_plateau_scheduler_steps_by_hand_only(context: pytorch.PyTorchTrialContext) -> None:
    """ReduceLROnPlateau must be wrapped with manual steps."""
    _, optimizer = line(context)
    with pytest.raises(ValueError, match=r"wrap it with LRScheduler.StepMode.MANUAL_STEP"):
        context.wrap_lr_scheduler(ReduceLROnPlateau(optimizer), EVERY_EPOCH)
    context.wrap_lr_scheduler(ReduceLROnPlateau(optimizer), MANUAL)


def test_an_impossible_mode_or_frequency_is_refused(context: pytorch.PyTorchTrialContext) -> None:
    """An invalid mode or frequency of a scheduler is refused."""
    _, optimizer = line(context)
    scheduler = LambdaLR(optimizer, lambda step: 1.0)
    with pytest.raises(TypeError, match=r"must be a member of LRScheduler.StepMode"):
        context.wrap_lr_scheduler(scheduler, "epoch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="frequency is 0"):
        context.wrap_lr_scheduler(scheduler, EVERY_EPOCH, 0)


def test_a_second_scaler_is_refused(context: pytorch.PyTorchTrialContext) -> None:
    """A second scaler is refused."""
    context.wrap_scaler(torch.amp.GradScaler("cpu"))
    with pytest.raises(ValueError, match="only once"):
        context.experimental.use_amp()


def test_a_scaler_after_a_model_is_refused(context: pytorch.PyTorchTrialContext) -> None:
    """A scaler that is wrapped after a model is refused."""
    line(context)
    with pytest.raises(ValueError, match=r"before wrap_model\(\)"):
        context.experimental.use_amp()


def test_only_a_trainer_counts_the_batches_of_a_window() -> None:
    """An aggregation frequency above 1 works only inside Trainer.fit()."""
    with pytest.raises(ValueError, match="aggregation_frequency is 0"), pytorch.init(aggregation_frequency=0):
        pass
    with pytorch.init(aggregation_frequency=2) as context:
        model, optimizer = line(context)
        with pytest.raises(RuntimeError, match=r"works inside of Trainer.fit\(\)"):
            context.step_optimizer(optimizer)
        with pytest.raises(ValueError, match="needs an aggregation_frequency of 1"):
            train(context, model, 1, auto_zero_grads=False)
