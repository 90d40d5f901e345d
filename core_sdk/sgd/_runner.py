"""The part of a trainer on each worker: its copy of the models, and all that trains them."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

import torch
from filelock import FileLock
from platformdirs import user_cache_dir
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

from core_sdk._execution.workers import this_worker
from core_sdk._ground.environment import RankPlace
from core_sdk._ground.records import Keep
from core_sdk._runtime.devices import devices
from core_sdk._runtime.strategies import NoStrategy, WeightedDdpStrategy
from core_sdk._runtime.torch_runtime import TorchRuntime
from core_sdk.loop import ResumableLoader, State, resumable
from core_sdk.loop import _rng as rng
from core_sdk.loop._host_memory import HostMemory
from core_sdk.loop._keeping import kept_parts
from core_sdk.loop._sharded_dataset import has_shards, is_sequence
from core_sdk.loop._state import plain_content, restore_random_numbers
from core_sdk.sgd import _passes
from core_sdk.sgd._batches import Batches
from core_sdk.sgd._creators import Creators, as_given, as_list
from core_sdk.sgd._metrics import Measured, as_numbers

P = ParamSpec("P")
T = TypeVar("T")

PARTS = ("models", "optimizers", "lr_schedulers", "training")
"""The parts of a state that can be kept. "training": the passes, the place in the data, the random numbers."""


class RunnerProgress(NamedTuple):
    """The progress of the training."""

    epoch: int
    """The number of complete passes over the data."""
    batches: int
    num_calls: int
    """The number of calls of `train()`."""


class Restored(NamedTuple):
    """The progress after a state was loaded."""

    progress: RunnerProgress
    is_own: bool
    """Whether the state is of the trainer's own trial."""


class RefusedError(ValueError):
    """What the trainer was given does not allow the call. The workers are unchanged."""


class TrainedPass(NamedTuple):
    measured: Measured
    num_batches: int
    progress: RunnerProgress
    times: Mapping[str, float]


class Runner:
    """The object that `apply_all_workers()` passes to users' functions, and that `initialization_hook` gets.

    Before the creators have been called, as in `initialization_hook`, it has only `config`, `rank`, `world_size` and
    `device`.
    """

    models: list[nn.Module]
    """The models as the creator has made them, without the wrappers for distributed training."""
    optimizers: list[torch.optim.Optimizer]
    schedulers: list[Any]
    criterion: Any
    train_loader: ResumableLoader
    validation_loader: ResumableLoader | None
    operator: Any = None
    """The training operator, if there is one."""
    spread_models: list[nn.Module]
    """The models in their wrappers for distributed training."""

    def __init__(self, creators: Creators, place: RankPlace) -> None:
        self.config = {
            **creators.config,
            # RaySGD passes these to users' functions.
            "__use_fp16__": creators.use_fp16,
            "scheduler_step": creators.scheduler_step_freq,
        }
        self.rank = place.rank
        self.world_size = place.size
        self.device = devices(place.local_rank, int(creators.use_gpu))[0]
        if creators.use_gpu:
            torch.cuda.set_device(self.device)
        self._creators = creators
        strategy = WeightedDdpStrategy(lambda: self._batches.share) if place.size > 1 else NoStrategy()
        self.runtime = TorchRuntime(place, self.device, strategy)

    @property
    def epoch(self) -> int:
        """The number of complete passes over the data."""
        return int(self._counts["epoch"])

    def set_up(self) -> None:
        """Calls the creators, or sets up the training operator. Collective."""
        creators = self._creators
        rng.seed_all(creators.seed)
        self.schedulers, self.criterion, self.validation_loader = [], None, None
        if creators.model_creator is not None and creators.optimizer_creator is not None:
            models = _checked("model_creator()", creators.model_creator(self.config), nn.Module)
            models = [model.to(self.device) for model in models]
            optimizers = creators.optimizer_creator(as_given(models), self.config)
            optimizers = _checked("optimizer_creator()", optimizers, torch.optim.Optimizer)
            schedulers = []
            if creators.scheduler_creator is not None:
                schedulers = creators.scheduler_creator(as_given(optimizers), self.config)
            self.register(models, optimizers, schedulers, self._create_criterion())
        if creators.data_creator is not None:
            with _only_one_on_this_node():
                datasets = creators.data_creator(self.config)
            # Many datasets are iterable, so only a tuple or a list counts as several datasets.
            self.register_data(*(datasets if isinstance(datasets, list | tuple) else [datasets]))
        if creators.training_operator_cls is not None:
            self.operator = creators.training_operator_cls(self)
            self.operator.setup(self.config)
        if not hasattr(self, "models") or not hasattr(self, "train_loader"):
            raise RefusedError("setup() of the training operator must call self.register(…) and self.register_data(…)")
        self._counts = {"epoch": 0, "in_epoch": 0, "calls": 0}
        """The complete epochs, the batches since then, and the calls; states of 0.1 have only the first."""
        self._parts = self._named_objects()
        self._state = State(**{name: each for part in self._parts.values() for name, each in part.items()})
        self._host_memory = HostMemory()
        self._held: Mapping[str, Any] = {}
        """The last copy of the state."""
        rng.seed_all(rng.key(creators.seed, "worker", self.rank))

    def register(self, models: Any, optimizers: Any, schedulers: Any, criterion: Any) -> None:
        """Takes over what is trained, and wraps it for several workers. Collective."""
        self.models = [model.to(self.device) for model in _checked("setup()", models, nn.Module)]
        self.optimizers = _checked("setup()", optimizers, torch.optim.Optimizer)
        self.schedulers = as_list(schedulers)
        self._check_schedulers()
        self.criterion = criterion.to(self.device) if isinstance(criterion, nn.Module) else criterion
        if self._creators.use_fp16:
            self.runtime.use_amp()
        self.spread_models = [self.runtime.wrap_model(model) for model in self.models]
        self.optimizers = [self.runtime.wrap_optimizer(optimizer) for optimizer in self.optimizers]

    def register_data(self, *data: Any) -> None:
        """Takes over a dataset or a loader to train on, and one to validate on."""
        train, *validation = [
            self._create_loader(each, is_shuffled=index == 0) for index, each in enumerate(_checked_datasets(data))
        ]
        self.train_loader, self.validation_loader = train, validation[0] if validation else None

    def train_pass(self, num_steps: int | None = None, info: Mapping[str, Any] | None = None) -> TrainedPass:
        """Trains the rest of the current epoch, or so many batches from there on. Collective."""
        began_at = time.perf_counter()
        self._check_trainable()
        for model in self.models:
            model.train()
        num_before = self._counts.get("in_epoch", 0)
        if (num_batches := self.train_loader.num_batches(self.epoch)) is not None:
            num_batches -= num_before
        self._batches = batches = Batches(self.train_loader.stream(), num_batches, num_steps)
        metrics = as_numbers(self._train(batches, self._info(num_steps, info)), "train_function()")
        self._share_buffers()
        self._count(batches, num_before, is_to_end=num_steps is None)
        num_given = max(1, batches.num_given)
        times = {
            "batch_time": (time.perf_counter() - began_at) / num_given,
            "data_time": batches.wait_s / num_given,
        }
        return TrainedPass(Measured(metrics, batches.num_samples), batches.num_given, self.progress(), times)

    def step_schedulers(self, metric: float) -> None:
        for scheduler in self.schedulers:
            scheduler.step(metric)

    def validate(self, num_steps: int | None = None, info: Mapping[str, Any] | None = None) -> Measured:
        if self.validation_loader is None:
            raise RefusedError("there are no data to validate on: let data_creator() return two datasets")
        if self.operator is None and not self._creators.validation_function and len(self.models) > 1:
            raise RefusedError("model_creator() returns several models: pass validation_function=")
        for model in self.models:
            model.eval()
        drawn = (each for each in self.validation_loader.single_pass() if not each[0].is_filler)
        if (first := next(drawn, None)) is None:
            return Measured({}, 0)  # there are fewer samples than workers
        batches = Batches(itertools.chain([first], drawn), self.validation_loader.num_batches(0), num_steps)
        # Random numbers that are drawn here must not change the training.
        with torch.no_grad(), rng.seeded(self._creators.seed, "validation", self.epoch):
            metrics = as_numbers(self._validate(batches, self._info(num_steps, info)), "validation_function()")
        return Measured(metrics, batches.num_samples)

    def progress(self) -> RunnerProgress:
        return RunnerProgress(self.epoch, self.train_loader.batches, self._counts.get("calls", self.epoch))

    def copied_models(self) -> Any:
        """Returns copies of the models on the CPU, on worker 0."""
        return as_given([copy.deepcopy(model).cpu() for model in self.models]) if self.rank == 0 else None

    def hold_state(self) -> Mapping[str, Any]:
        """Copies the state of the training in host memory, on worker 0. Returns the random state of this worker.

        The copy is valid until the next one is made.
        """
        if self.rank == 0:
            with rng.kept():
                content = {**self._state.state_dict(), "trial_id": self._creators.trial_id}
                self._held = self._host_memory.copy(plain_content(content))
        return rng.capture()

    def held_state(self, random_states: Sequence[Mapping[str, Any]]) -> bytes:
        """Returns the copied state, with the random states of all workers, for `torch.load(weights_only=True)`.

        Only worker 0 has it. It may be called in any thread, also while the training goes on.
        """
        (own,) = self._held["ranks"]
        written = io.BytesIO()
        torch.save({**self._held, "ranks": [{**own, "random": state} for state in random_states]}, written)
        return written.getvalue()

    def read_state(self, written: bytes, keep: Keep | None) -> Restored:
        """Loads the parts of a state that `keep` names; by default all, or the weights of another trial's state.

        Raises `StateMismatchError` if models or optimizers differ from those that were saved.
        """
        content = torch.load(io.BytesIO(written), map_location="cpu", weights_only=True)
        is_own = content["trial_id"] == self._creators.trial_id
        if keep is None:
            keep = "all" if is_own else "model"
        kept = kept_parts(keep, PARTS, models=["models"])
        names = [name for part in kept for name in self._parts[part]]
        self._state.load_state_dict(content, keep="all" if keep == "all" else names)
        if "training" in kept:
            restore_random_numbers([each["random"] for each in content["ranks"]], self.rank)
        return Restored(self.progress(), is_own)

    def _named_objects(self) -> dict[str, dict[str, Any]]:
        """Returns the objects of the state, with their names in it, by the part to which they belong."""
        scaler = self.runtime.precision.scaler
        scalers = {"scaler": scaler} if scaler is not None and scaler.is_enabled() else {}
        return {
            "models": {f"model_{index}": each for index, each in enumerate(self.models)},
            "optimizers": {f"optimizer_{index}": each for index, each in enumerate(self.optimizers)} | scalers,
            "lr_schedulers": {f"scheduler_{index}": each for index, each in enumerate(self.schedulers)},
            "training": {"train_loader": self.train_loader, "counts": self._counts} | self._operator_with_state(),
        }

    def _operator_with_state(self) -> dict[str, Any]:
        return {} if self.operator is None or self.operator.state_dict() is None else {"operator": self.operator}

    def _info(self, num_steps: int | None, info: Mapping[str, Any] | None) -> dict[str, Any]:
        """Returns what the methods of a training operator are told."""
        step = self._creators.scheduler_step_freq
        return {"epoch_idx": self.epoch, "num_steps": num_steps, "scheduler_step": step, **(info or {})}

    def _check_trainable(self) -> None:
        if self.operator is not None or self._creators.train_function is not None:
            return
        if max(len(self.models), len(self.optimizers), len(self.schedulers)) > 1:
            raise RefusedError(
                "the creators return several models, optimizers or schedulers: pass train_function=, a function of "
                f"(config, models, batches, criterion, optimizers{', schedulers' if self.schedulers else ''}), where "
                "each of these is a list if there are several"
            )

    def _count(self, batches: Batches, num_before: int, *, is_to_end: bool) -> None:
        """Counts a pass. One that was to train to the epoch's end has ended it, even if its function left early."""
        is_left_early = is_to_end and not batches.is_over
        num_in_epoch = 0 if is_to_end else batches.num_in_epoch + (0 if batches.num_epochs else num_before)
        self._counts |= {
            "epoch": self.epoch + batches.num_epochs + is_left_early,
            "in_epoch": num_in_epoch,
            "calls": self.progress().num_calls + 1,
        }
        if is_left_early:
            self.train_loader.begin_epoch(self.epoch)

    def _train(self, batches: Batches, info: dict[str, Any]) -> Any:
        creators = self._creators
        if self.operator is not None:
            return self.operator.train_epoch(batches, info)
        arguments = (batches, self.criterion, as_given(self.optimizers))
        if creators.train_function is not None:
            schedulers = [as_given(self.schedulers)] if self.schedulers else []
            return creators.train_function(self.config, as_given(self.spread_models), *arguments, *schedulers)
        by_batch = self.schedulers if creators.scheduler_step_freq == "batch" else []
        metrics = _passes.train(self.spread_models[0], *arguments, by_batch, self.runtime)
        if creators.scheduler_step_freq == "epoch":
            for scheduler in self.schedulers:
                scheduler.step()
        return metrics

    def _validate(self, batches: Batches, info: dict[str, Any]) -> Any:
        if self.operator is not None:
            with _without_collectives(self.spread_models):
                return self.operator.validate(batches, info)
        function = self._creators.validation_function
        if function:
            schedulers = [as_given(self.schedulers)] if self.schedulers else []
            return function(self.config, as_given(self.models), batches, self.criterion, *schedulers)
        return _passes.validate(self.models[0], batches, self.criterion, self.device)

    def _check_schedulers(self) -> None:
        creators = self._creators
        if self.schedulers and creators.training_operator_cls is not None and creators.scheduler_step_freq is None:
            raise RefusedError(
                "there is a scheduler, and scheduler_step_freq is None: pass 'batch', 'epoch', or 'manual' for an "
                "operator that steps it itself or a program that calls update_scheduler(metric)"
            )
        steps_itself = creators.train_function is None and creators.scheduler_step_freq in ("batch", "epoch")
        if steps_itself and any(isinstance(each, ReduceLROnPlateau) for each in self.schedulers):
            raise ValueError(
                "ReduceLROnPlateau steps by a metric: pass scheduler_step_freq='manual', and call "
                "update_scheduler(metric)"
            )

    def _create_criterion(self) -> Any:
        create = self._creators.loss_creator
        return create and (create() if inspect.isclass(create) else create(self.config))

    def _create_loader(self, dataset: Any, *, is_shuffled: bool) -> ResumableLoader:
        creators = self._creators
        if isinstance(dataset, DataLoader):
            if creators.training_operator_cls is None:
                raise TypeError(
                    "data_creator() returned a DataLoader; it must return the dataset. Give options of the loader as "
                    "dataloader_config="
                )
            return resumable(dataset, seed=creators.seed)
        options = {"shuffle": True, **creators.dataloader_config}
        if not is_shuffled:
            options = {**options, "shuffle": False, "sampler": None, "drop_last": False}
        if options.get("sampler") is not None or has_shards(dataset):
            del options["shuffle"]
        loader: DataLoader[Any] = DataLoader(dataset, batch_size=creators.batch_size, **options)
        return resumable(loader, seed=creators.seed, shares_batch=True)

    def _share_buffers(self) -> None:
        """Copies the models' buffers, such as the means of a batch norm, from worker 0 to all workers. Collective."""
        if self.world_size > 1:
            for model in self.models:
                for buffer in model.buffers():
                    dist.broadcast(buffer, src=0)


def create(creators: Creators) -> None:
    """Makes the runner of this worker."""
    worker = this_worker()
    runner = worker.state["runner"] = Runner(creators, worker.place)
    if creators.initialization_hook is not None:
        creators.initialization_hook(runner)


class OnRunner(Generic[P, T]):
    """Calls a function with the runner of the worker that executes it."""

    def __init__(self, function: Callable[Concatenate[Runner, P], T]) -> None:
        self._function = function
        # Errors name the call by it.
        self.__qualname__: str = getattr(function, "__qualname__", type(function).__qualname__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._function(this_worker().state["runner"], *args, **kwargs)


def _only_one_on_this_node() -> FileLock:
    """Returns a lock that only one worker of this node holds at a time, so that downloads happen once."""
    directory = Path(user_cache_dir("core-sdk"))
    directory.mkdir(parents=True, exist_ok=True)
    return FileLock(directory / "data_creator.lock")


@contextlib.contextmanager
def _without_collectives(models: Sequence[nn.Module]) -> Iterator[None]:
    """Lets the wrapped models share no buffers for a block, in which some workers may have fewer batches."""
    wrapped = [model for model in models if isinstance(model, DistributedDataParallel)]
    for model in wrapped:
        model.broadcast_buffers = False
    try:
        yield
    finally:
        for model in wrapped:
            model.broadcast_buffers = True


def _checked(creator: str, created: Any, kind: type[T]) -> list[T]:
    objects = as_list(created)
    for each in objects:
        if not isinstance(each, kind):
            verb = "register" if creator == "setup()" else "return"
            raise TypeError(f"{creator} {verb}ed a {type(each).__name__}; it must {verb} a torch {kind.__name__}")
    return objects


def _checked_datasets(datasets: Sequence[Any]) -> Sequence[Any]:
    if not 1 <= len(datasets) <= 2:
        raise TypeError(f"data_creator() returned {len(datasets)} datasets; it must return one or two")
    for dataset in datasets:
        _check_dataset(dataset)
    return datasets


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, DataLoader) and not is_sequence(dataset) and not has_shards(dataset):
        raise TypeError(
            f"data_creator() returned a {type(dataset).__name__}; it must return one or two datasets with "
            "__getitem__() and __len__(), or with shards (loop.ShardedDataset), which can be divided among workers"
        )
