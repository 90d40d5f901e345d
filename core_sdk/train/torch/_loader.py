"""Divides a loader's data among the workers, in an order that any number of workers resumes exactly."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from core_sdk.loop import resumable
from core_sdk.loop._moving import to_device
from core_sdk.loop._sharded_dataset import has_shards
from core_sdk.train._worker.epochs import Epochs
from core_sdk.train._worker.session import Session
from core_sdk.train.torch._devices import get_device


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> PreparedLoader:
    """Returns a loader that gives each worker its part of the data, on its device.

    All options of the loader are kept. `batch_size` counts the samples of one worker; a batch sampler's batches go to
    the workers in turn. The order depends only on the trial's seed and the epoch, so `state_dict()` and
    `load_state_dict()` resume at the very next sample, also on another number of workers. A loader that has a
    `DistributedSampler` keeps it, and `add_dist_sampler=False` keeps the loader's own order.

    With `auto_transfer`, the next batch is copied to a GPU while the function works on this one; the loader needs
    `pin_memory=True` for that. Raises `TypeError`, or `ValueError` for an iterable dataset without shards with several
    workers, since it cannot be divided.
    """
    if not isinstance(data_loader, DataLoader):
        raise TypeError(f"prepare_data_loader() takes a DataLoader of torch, not {type(data_loader).__name__}")
    distributed = Session.current("prepare_data_loader()").context.distributed
    divides = add_dist_sampler and not isinstance(data_loader.sampler, DistributedSampler)
    if divides and isinstance(data_loader.dataset, IterableDataset) and not has_shards(data_loader.dataset):
        if distributed.size > 1:
            raise ValueError(
                f"{type(data_loader.dataset).__name__} is an IterableDataset, which cannot be divided among "
                f"{distributed.size} workers: give its shards to a loop.ShardedDataset, or let it read its own part "
                "(by get_context().get_world_rank()) and pass add_dist_sampler=False"
            )
        divides = False
    epochs = Epochs(resumable(data_loader, distributed=distributed)) if divides else None
    device = get_device() if move_to_device else None
    return PreparedLoader(data_loader, epochs, device, is_ahead=auto_transfer)


class PreparedLoader:
    """A loader made by `prepare_data_loader()`. It has all attributes of the loader, and yields this worker's part.

    Each iteration is a new epoch; the first one after `load_state_dict()` goes on at the position of the state.
    """

    def __init__(
        self, loader: DataLoader[Any], epochs: Epochs | None, device: torch.device | None, *, is_ahead: bool
    ) -> None:
        """`epochs` is None for a loader that is iterated as it is, and `device` if batches stay where they are."""
        self._loader = loader
        self._epochs = epochs
        self._device = device
        self._is_ahead = is_ahead and device is not None and device.type == "cuda"
        self._state: dict[str, Any] | None = None
        """The state at the last batch that was yielded, while the loader is ahead of it."""

    @property
    def sampler(self) -> Any:
        """The object whose `set_epoch(epoch)` sets the epoch of this loader, as with a `DistributedSampler`."""
        return self._loader.sampler if self._epochs is None else self._epochs

    def __len__(self) -> int:
        return len(self._loader if self._epochs is None else self._epochs)

    def __iter__(self) -> Iterator[Any]:
        source: Any = self._loader if self._epochs is None else self._epochs
        if self._is_ahead and self._device is not None:
            for batch, state in _fetched_ahead(self._with_states(source), self._device):
                self._state = state
                yield batch
            self._state = None
        else:
            for batch in source:
                yield batch if self._device is None else to_device(batch, self._device)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, as plain values. Raises `ValueError` for a loader that keeps its own order."""
        return self._state or self._known_epochs().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on at the position of a state. Raises `DataError` if it cannot be found in these data."""
        self._known_epochs().load_state_dict(state)
        self._state = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def _known_epochs(self) -> Epochs:
        if self._epochs is None:
            raise ValueError("this loader keeps its own order, whose position is not known")
        return self._epochs

    def _with_states(self, source: Any) -> Iterator[tuple[Any, dict[str, Any] | None]]:
        for batch in source:
            yield batch, None if self._epochs is None else self._epochs.state_dict()


def _fetched_ahead(
    batches: Iterator[tuple[Any, dict[str, Any] | None]], device: torch.device
) -> Iterator[tuple[Any, dict[str, Any] | None]]:
    """Yields batches on the device. The next one is copied while the caller works on this one."""
    travelling: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    ahead: deque[tuple[Any, dict[str, Any] | None]] = deque()

    def fetch() -> None:
        if (found := next(batches, None)) is not None:
            with torch.cuda.stream(travelling):
                ahead.append((to_device(found[0], device), found[1]))

    fetch()
    while ahead:
        current_stream = torch.cuda.current_stream(device)
        current_stream.wait_stream(travelling)
        batch, state = ahead.popleft()
        _use_on(batch, current_stream)
        fetch()
        yield batch, state


def _use_on(batch: Any, stream: torch.cuda.Stream) -> None:
    """Keeps the allocator from giving the memory to the travelling stream while this one uses it."""
    if isinstance(batch, torch.Tensor):
        batch.record_stream(stream)
    elif isinstance(batch, dict):
        _use_on(list(batch.values()), stream)
    elif isinstance(batch, list | tuple):
        for each in batch:
            _use_on(each, stream)
