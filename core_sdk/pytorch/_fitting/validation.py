"""Validates a trial: by batches on all ranks, or by the whole dataset on the chief."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from core_sdk.loop import _rng as rng
from core_sdk.pytorch._fitting.callbacks import TrialCallbacks
from core_sdk.pytorch._fitting.data import VALIDATION_LOADER, Data, built_loader
from core_sdk.pytorch._fitting.metrics import (
    BatchMetrics,
    Columns,
    LeftOut,
    NotJson,
    Reduce,
    mean,
    metric_names,
    reduced,
    without_none,
)
from core_sdk.pytorch._reducers import Reducer, reduce_across_slots
from core_sdk.pytorch._run import TrialRun
from core_sdk.pytorch._trial import PyTorchTrial

_REDUCES: Mapping[Reducer, Reduce] = {
    Reducer.AVG: mean,
    Reducer.SUM: lambda values, _: sum(values),
    Reducer.MAX: lambda values, _: _extreme(values, max),
    Reducer.MIN: lambda values, _: _extreme(values, min),
}


def evaluates_batches(trial: PyTorchTrial) -> bool:
    """Returns whether the trial validates by batches.

    Raises `ValueError` unless it has exactly one of the two methods.
    """
    kind = type(trial)
    has_batch = kind.evaluate_batch is not PyTorchTrial.evaluate_batch
    has_full = kind.evaluate_full_dataset is not PyTorchTrial.evaluate_full_dataset
    if has_batch == has_full:
        found = "both evaluate_batch() and" if has_batch else "neither evaluate_batch() nor"
        raise ValueError(f"{kind.__name__} has {found} evaluate_full_dataset(): define one of them, and only one")
    return has_batch


def reduces_of(reducer: Any, names: Sequence[str]) -> dict[str, Reduce]:
    """Returns the reduction of each metric, from the result of `evaluation_reducer()`.

    Raises `ValueError` if its metrics are others than those in `names`, and `TypeError` for other objects than
    reducers.
    """
    by_name = reducer if isinstance(reducer, Mapping) else dict.fromkeys(names, reducer)
    if by_name.keys() != set(names):
        missing = sorted(set(names) - by_name.keys())
        unknown = sorted(by_name.keys() - set(names))
        raise ValueError(
            f"evaluation_reducer() returned reducers for {sorted(by_name)}, and evaluate_batch() the metrics "
            f"{sorted(names)}: "
            + " and ".join(
                [f"add a reducer for {', '.join(missing)}"] * bool(missing)
                + [f"remove that for {', '.join(unknown)}"] * bool(unknown)
            )
        )
    for name, each in by_name.items():
        if not isinstance(each, Reducer):
            raise TypeError(
                f"evaluation_reducer() returned {each!r} for the metric {name!r}; it must be a member of "
                "pytorch.Reducer. context.wrap_reducer() takes functions"
            )
    return {name: _REDUCES[by_name[name]] for name in names}


def _extreme(values: Sequence[float], choose: Callable[[Sequence[float]], float]) -> float:
    """Returns the extreme, or NaN if there is one. With Python's own comparison, NaN's position would matter."""
    return next((value for value in values if value != value), None) or choose(values)


class Validator:
    """Validates with the methods of the trial, on all ranks together."""

    def __init__(
        self, trial: PyTorchTrial, run: TrialRun[Any], callbacks: TrialCallbacks, max_batches: int | None = None
    ) -> None:
        """`max_batches` limits the validations of a `test_mode`."""
        self._trial = trial
        self._max_batches = max_batches
        self._run = run
        self._callbacks = callbacks
        self._left_out = LeftOut(run.distributed.is_chief)
        self._evaluates_batches = evaluates_batches(trial)
        if not self._evaluates_batches and run.runtime.is_sharding:
            raise ValueError(
                f"{type(trial).__name__} evaluates the full dataset on the chief, which has only a part of a model "
                "that is split over the ranks: define evaluate_batch() instead"
            )
        self._loader = self._built_loader()
        if self._evaluates_batches:
            self._data = self._made_data()
            self._data.check_ranks(run.distributed)

    def _built_loader(self) -> Any:
        return built_loader(self._trial, VALIDATION_LOADER, self._run)

    def _made_data(self) -> Data:
        return Data(self._trial, self._loader, VALIDATION_LOADER, self._run)

    def run(self, batches: int, should_stop: Callable[[], bool], progress: Mapping[str, Any]) -> dict[str, Any] | None:
        """Validates, and returns the metrics on every rank; None if a stop has cut the validation off.

        The stop flag is read before each batch. The training's random numbers are restored afterwards, and those of the
        validation follow from `batches`, so that the schedule of validations does not change the training. Hooks get
        `progress` together with the metrics.
        """
        run = self._run
        run.reducers.reset()
        with rng.seeded(run.seed, "validation", batches):
            self._callbacks.call("on_validation_start")
            with torch.no_grad(), in_eval_mode(run.runtime.models):
                metrics = self._of_batches(should_stop) if self._evaluates_batches else self._of_dataset(should_stop)
            run.reducers.reset()
            if metrics is not None:
                shown = {**progress, **metrics}
                self._callbacks.call("on_validation_end", shown)
                metrics = {name: value for name, value in shown.items() if name in metrics or name not in progress}
        return metrics

    def explain(self, error: BaseException) -> None:
        """Adds a note to an error of torch about a lost worker of the loader."""
        if self._evaluates_batches:
            self._data.explain(error)

    def _of_batches(self, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        run, evaluate = self._run, self._batch_evaluator()
        metrics = BatchMetrics("evaluate_batch")
        reducers = run.reducers.chosen(for_training=False)
        contributions: list[Any] | None = None
        end_hooks = self._callbacks.hooks("on_validation_epoch_end")
        outputs: list[Any] = []
        self._callbacks.call("on_validation_epoch_start")
        for index, (batch, num_samples) in enumerate(itertools.islice(self._batches(), self._max_batches)):
            # All ranks must read the flag equally often. If they may have different numbers of batches, only once.
            if (index == 0 or self._data.is_divided) and should_stop():
                return None
            if num_samples == 0:
                # The batch repeats samples of another rank, since models may need all ranks. It is not counted.
                contributions = copy.deepcopy([each.call("per_slot_reduce") for each in reducers])
            returned = evaluate(run.to_device(batch) if run.moves_batches else batch, index)
            metrics.add(returned, index, num_samples)
            if end_hooks and num_samples:
                outputs.append(returned)
        for hook in end_hooks:
            hook(outputs)
        if contributions is None:
            contributions = [each.call("per_slot_reduce") for each in reducers]
        gathered = run.distributed.allgather((metrics.take(), contributions))
        result = self._over_ranks([columns for columns, _ in gathered])
        return {**result, **reduce_across_slots(reducers, [each for _, each in gathered])}

    def _batches(self) -> Iterator[tuple[Any, int]]:
        """Yields each batch of this rank, with its number of samples; 0 if the batch repeats another rank's samples."""
        return self._data.single_pass()

    def _batch_evaluator(self) -> Callable[[Any, int], Any]:
        """Returns `evaluate_batch()` as a function of the batch and its index, which the trial's method may lack."""
        trial, parameters = self._trial, inspect.signature(self._trial.evaluate_batch).parameters
        if "batch_idx" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            return lambda batch, index: trial.evaluate_batch(batch=batch, batch_idx=index)
        return lambda batch, index: trial.evaluate_batch(batch=batch)

    def _over_ranks(self, ranks: Sequence[Columns]) -> dict[str, Any]:
        names = metric_names(ranks)
        if not any(columns.num_samples for columns in ranks):
            raise ValueError("the loader of build_validation_data_loader() is empty: there is nothing to validate with")
        return without_none(reduced(ranks, reduces_of(self._trial.evaluation_reducer(), names), self._left_out))

    def _of_dataset(self, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        if should_stop():
            return None
        metrics = BatchMetrics("evaluate_full_dataset")

        def evaluate() -> dict[str, Any]:
            metrics.add(self._trial.evaluate_full_dataset(data_loader=self._loader), 0, 1)
            values = {name: values[0] for name, values in metrics.take().values.items()}
            for name, value in values.items():
                if isinstance(value, NotJson):
                    self._left_out.say(name, f"it is {value.kind}")
            return without_none({name: value for name, value in values.items() if not isinstance(value, NotJson)})

        self._run.runtime.set_forward_sync(False)  # the chief uses the models while no other rank does
        try:
            metrics_of_chief = self._run.distributed.channel.broadcast_outcome(evaluate, is_patient=True)
        finally:
            self._run.runtime.set_forward_sync(True)
        return {**metrics_of_chief, **self._run.reducers.reduce(False, self._run.distributed.allgather)}


@contextlib.contextmanager
def in_eval_mode(models: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Puts models into evaluation mode, and restores the mode of every module at the end of the block."""
    training = [module for model in models for module in model.modules() if module.training]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
