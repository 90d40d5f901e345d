"""The Trainer of DeepSpeed's trials, and the training with micro-batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

from core_sdk._runtime.runtime import PARTS as WRAPPED
from core_sdk.loop._plan import Draw
from core_sdk.pytorch._fitting.checkpoint import TrialState
from core_sdk.pytorch._fitting.data import TRAINING_LOADER, VALIDATION_LOADER, Data
from core_sdk.pytorch._fitting.fitting import Fitting
from core_sdk.pytorch._fitting.validation import Validator
from core_sdk.pytorch._run import TrialRun
from core_sdk.pytorch._trainer import Trainer as PyTorchTrainer
from core_sdk.pytorch._trial import PyTorchTrial
from core_sdk.pytorch.deepspeed._context import DeepSpeedTrialContext, EngineRuntime
from core_sdk.pytorch.deepspeed._trial import DeepSpeedTrial

_END = object()


class MicroBatches(NamedTuple):
    """A batch, which consists of the micro-batches between two steps of an engine."""

    epoch: int
    num_samples: tuple[int, ...]
    """The number of this rank's samples in each micro-batch."""
    num_global: int
    is_epoch_end: bool


class NoData(Data):
    """The empty data of a rank that reads none, such as a middle stage of a pipeline."""

    batches_per_epoch = None
    is_divided = True

    def __init__(self, method: str) -> None:
        self._method = method

    def stream(self) -> Iterator[Any]:
        return iter(())

    def single_pass(self) -> Iterator[Any]:
        return iter(())

    def explain(self, error: BaseException) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def _in_common(self) -> dict[str, Any]:
        return {}


def all_read_data(run: TrialRun[EngineRuntime]) -> bool:
    """Returns whether all ranks read data, so that the chief need not tell any rank about its batches. Collective.

    Raises `ValueError` if the chief itself reads none.
    """
    are_reading = run.distributed.allgather(run.runtime.mpu.should_build_data_loader)
    if not are_reading[0]:
        raise ValueError("rank 0 must read data: set should_build_data_loader in its ModelParallelUnit")
    return all(are_reading)


class EngineFitting(Fitting):
    """The training of a `DeepSpeedTrial`."""

    _trial: Any
    _run: TrialRun[EngineRuntime]

    def __init__(self, trial: PyTorchTrial, run: TrialRun[EngineRuntime], *parts: Any) -> None:
        super().__init__(trial, run, *parts)
        self._all_read_data = all_read_data(run)

    @property
    def batches_per_epoch(self) -> int | None:
        micro_batches = super().batches_per_epoch
        return None if micro_batches is None else micro_batches // self._run.runtime.micro_batches[1]

    def _next_batch(self) -> tuple[MicroBatches, list[Any]]:
        drawn = list(itertools.islice(self._stream, self._run.runtime.micro_batches[1]))
        return self._described(drawn), [batch for _, batch in drawn]

    def _described(self, drawn: list[tuple[Draw, Any]]) -> MicroBatches:
        """Returns the description of a batch. Collective if some ranks read no data: then the chief tells them."""
        own = MicroBatches(
            epoch=drawn[0][0].epoch if drawn else 0,
            num_samples=tuple(self._data.num_samples(draw, batch) for draw, batch in drawn),
            num_global=sum(draw.num_global for draw, _ in drawn),
            is_epoch_end=any(draw.is_epoch_end for draw, _ in drawn),
        )
        if self._all_read_data:
            return own
        told: MicroBatches = self._run.distributed.broadcast(own)
        return told._replace(num_samples=own.num_samples or told.num_samples)

    def _train_on(self, batches: list[Any], trained: MicroBatches, index: int) -> Any:
        """Trains on a batch, and returns what the trial's last call has returned."""
        runtime, returned = self._run.runtime, None
        iterator = iter(batches) if runtime.mpu.should_build_data_loader else None
        for count in [sum(trained.num_samples)] if runtime.takes_whole_batches else trained.num_samples:
            try:
                returned = self._trial.train_batch(iterator, trained.epoch, index)
            except StopIteration as error:
                raise RuntimeError(_wrong_number("more", len(batches))) from error
            if runtime.mpu.should_report_metrics:
                self._metrics.add(returned, index, count)
        if iterator is not None and next(iterator, _END) is not _END:
            raise RuntimeError(_wrong_number("fewer", len(batches)))
        return returned


def _wrong_number(how: str, num_micro_batches: int) -> str:
    return (
        f"train_batch() took {how} micro-batches from its iterator than the {num_micro_batches} of a batch, which "
        "DeepSpeed's gradient_accumulation_steps says: take one in each call, or all of them in one call after "
        "context.disable_auto_grad_accumulation()"
    )


class EngineValidator(Validator):
    """Validates with iterators over micro-batches in place of batches."""

    _trial: Any
    _run: TrialRun[EngineRuntime]

    def _built_loader(self) -> Any:
        self._all_read_data = all_read_data(self._run)
        return super()._built_loader() if self._run.runtime.mpu.should_build_data_loader else None

    def _made_data(self) -> Data:
        return NoData(VALIDATION_LOADER) if self._loader is None else super()._made_data()

    def _batches(self) -> Iterator[tuple[Any, int]]:
        """Yields lists of micro-batches, with the number of this rank's samples in each list."""
        length = self._run.runtime.micro_batches[1] if self._run.runtime.is_pipeline else 1
        groups = _groups(super()._batches(), length)
        while True:
            group = next(groups, None)
            num_samples = None if group is None else sum(count for _, count in group)
            if not self._all_read_data:
                told = self._run.distributed.broadcast(num_samples)
                num_samples = told if self._loader is None else num_samples
            if num_samples is None:
                return
            yield [batch for batch, _ in group or ()], num_samples

    def _batch_evaluator(self) -> Callable[[Any, int], Any]:
        def evaluate(batches: list[Any], index: int) -> Any:
            iterator = None if self._loader is None else iter(batches)
            returned = self._trial.evaluate_batch(iterator, index)
            return returned if self._run.runtime.mpu.should_report_metrics else {}

        return evaluate


def _groups(items: Iterable[tuple[Any, int]], length: int) -> Iterator[list[tuple[Any, int]]]:
    """Yields groups of `length` items. Drops an incomplete last group, which a pipeline cannot process."""
    iterator = iter(items)
    while len(group := list(itertools.islice(iterator, length))) == length:
        yield group


class Trainer(PyTorchTrainer):
    """Trains a `DeepSpeedTrial`, inside the `with` of the `deepspeed.init()` that has given its context.

    It is the Trainer of other trials; a batch is what lies between two steps of an engine, on all ranks.
    """

    _fitting_class = EngineFitting
    _validator_class = EngineValidator

    def __init__(self, trial: DeepSpeedTrial, context: DeepSpeedTrialContext) -> None:
        super().__init__(trial, cast(Any, context))
        self._load_engines = partial(trial.load, context)
        self._run.runtime.save_engines = partial(trial.save, context)

    def _training_data(self) -> Data:
        return super()._training_data() if self._run.runtime.mpu.should_build_data_loader else NoData(TRAINING_LOADER)

    def _load(self, state: TrialState, content: dict[str, Any], storage_id: str, kept: Collection[str]) -> None:
        if not set(WRAPPED).issubset(kept):
            raise ValueError('the engines of DeepSpeed load all that they have saved: leave out keep, or give "all"')
        with self._run.core.checkpoint.restore_path(storage_id) as directory:
            self._load_engines(directory)
        super()._load(state, content, storage_id, kept)
