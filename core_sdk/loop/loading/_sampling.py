"""The order that a loader's samplers ask for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, DistributedSampler

from core_sdk.errors import DataError, NotExactError
from core_sdk.loop import rng
from core_sdk.loop.loading._source import is_stateful
from core_sdk.loop.orders import Listed, ListedBatches, Order, Selected, Sequential, Shuffled, Weighted

Form = Literal["samples", "one sample", "indices", "batch"]
"""What a dataset is asked for: samples by their indices, one sample by its index, or all at once by a list of indices
(both with `batch_size=None`), or the samples of a batch that a batch sampler gives."""


@dataclass(frozen=True)
class Sampling:
    """How a loader chooses its samples."""

    order: Order
    batch_size: int
    """The units of one rank's part of a batch."""
    drop_last: bool
    form: Form
    drawn: DrawnSampler | None
    """The sampler, if its draws are listed."""


def read_sampling(loader: DataLoader[Any], seed: int, exact: bool) -> Sampling:
    """Raises `ValueError` for a sampler without a length, and `NotExactError` for one without a fixed order."""
    batch_sampler: Any = loader.batch_sampler
    if batch_sampler is not None and _kind(batch_sampler) != "BatchSampler":
        drawn = DrawnSampler(batch_sampler, seed, exact)
        return Sampling(ListedBatches(drawn.length, drawn.draw), 1, False, "batch", drawn)
    form: Form = "samples"
    if batch_sampler is None:
        batch_sampler = loader.sampler
        form = "indices"
    if _kind(batch_sampler) != "BatchSampler":
        order, drawn_or_none = _order(batch_sampler, seed, exact)
        return Sampling(order, 1, False, "one sample", drawn_or_none)
    order, drawn_or_none = _order(batch_sampler.sampler, seed, exact)
    return Sampling(order, batch_sampler.batch_size, batch_sampler.drop_last, form, drawn_or_none)


def _order(sampler: Any, seed: int, exact: bool) -> tuple[Order, DrawnSampler | None]:
    """The samplers of torch and torchdata become functions of the position, whatever state they have."""
    match _kind(sampler):
        case "SequentialSampler":
            return Sequential(len(sampler)), None
        case "DistributedSampler" | "StatefulDistributedSampler":
            num_samples = len(sampler.dataset)
            return Shuffled(num_samples, seed) if sampler.shuffle else Sequential(num_samples), None
        case "RandomSampler" if sampler.replacement:
            return Weighted(torch.ones(len(sampler.data_source)), sampler.num_samples, seed), None
        case "RandomSampler":
            return Shuffled(len(sampler.data_source), seed, sampler.num_samples), None
        case "WeightedRandomSampler":
            return Weighted(sampler.weights, sampler.num_samples, seed, replacement=sampler.replacement), None
        case "SubsetRandomSampler":
            return Selected(Shuffled(len(sampler), seed), sampler.indices), None
    drawn = DrawnSampler(sampler, seed, exact)
    return Listed(drawn.length, drawn.draw), drawn


def _kind(sampler: Any) -> str:
    """The name of a class of torch or torchdata. A class of the user's has none, because it may do anything."""
    kind = type(sampler)
    return kind.__name__ if kind.__module__.partition(".")[0] in ("torch", "torchdata") else ""


class DrawnSampler:
    """Draws all that a sampler of the user's gives in an epoch.

    It draws under generators that are seeded by the epoch, after `set_epoch(epoch)` if the sampler has it. A sampler
    with `state_dict()` and `load_state_dict()` is given the state that it had at the start of the epoch.
    """

    def __init__(self, sampler: Any, seed: int, exact: bool) -> None:
        self.length = _length(sampler)
        self._sampler = sampler
        self._seed = seed
        self._is_stateful = is_stateful(sampler)
        self._states = {0: copy.deepcopy(sampler.state_dict())} if self._is_stateful else {}
        _check_whole(sampler)
        if exact and not self._is_stateful and self.draw(0) != self.draw(0):
            raise NotExactError(
                f"{type(sampler).__name__} gives another order each time that it is asked for the same epoch",
                "give it set_epoch(epoch), or state_dict() and load_state_dict(), or draw from a global generator",
            )

    def draw(self, epoch: int) -> list[Any]:
        """Raises `DataError` if the epoch has another length than the sampler says."""
        if not self._is_stateful:
            return self._draw(epoch)
        known = self._last_known(epoch)
        self._sampler.load_state_dict(copy.deepcopy(self._states[known]))
        for each in range(known, epoch + 1):
            drawn = self._draw(each)
            self._states[each + 1] = copy.deepcopy(self._sampler.state_dict())
        return drawn

    def state(self, epoch: int) -> dict[str, Any] | None:
        """For `load()`: the sampler's last known state at the start of `epoch` or before."""
        if not self._is_stateful:
            return None
        known = self._last_known(epoch)
        self._states = {each: state for each, state in self._states.items() if each in (0, known) or each > epoch}
        return {"epoch": known, "state": self._states[known]}

    def load(self, state: dict[str, Any]) -> None:
        self._states = {0: self._states[0], state["epoch"]: state["state"]}

    def _last_known(self, epoch: int) -> int:
        return max(each for each in self._states if each <= epoch)

    def _draw(self, epoch: int) -> list[Any]:
        with rng.seeded(self._seed, "sampler", epoch):
            for sampler in _chain(self._sampler):
                if isinstance(generator := getattr(sampler, "generator", None), torch.Generator):
                    generator.manual_seed(rng.key(self._seed, "generator", epoch))
                if callable(set_epoch := getattr(sampler, "set_epoch", None)):
                    set_epoch(epoch)
            drawn = [_plain(key) for key in islice(self._sampler, self.length + 1)]
        if len(drawn) != self.length:
            raise DataError(
                f"{type(self._sampler).__name__} has a length of {self.length}, and gives "
                f"{'more' if len(drawn) > self.length else len(drawn)} in epoch {epoch}: positions need epochs of "
                "equal lengths, so let it give one round of the data, as many as __len__() says"
            )
        return drawn


def _plain(key: Any) -> Any:
    return key.tolist() if isinstance(key, torch.Tensor) else key


def _chain(sampler: Any) -> Iterator[Any]:
    """A sampler, the sampler that it draws from, and so on."""
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", None)


def _check_whole(sampler: Any) -> None:
    for inner in _chain(sampler):
        if isinstance(inner, DistributedSampler) and inner.num_replicas > 1:
            raise ValueError(
                f"{type(sampler).__name__} gives the part of one rank of {inner.num_replicas}, but resumable() itself "
                "divides each batch among the ranks: give a sampler of all the data, without DistributedSampler"
            )


def _length(sampler: Any) -> int:
    try:
        return len(sampler)
    except TypeError:
        raise ValueError(
            f"{type(sampler).__name__} has no length, without which no position in an epoch can be found: give it "
            "__len__(), the number of what it gives in an epoch"
        ) from None
