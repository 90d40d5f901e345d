"""The order that a loader's samplers define."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, DistributedSampler

from core_sdk.errors import DataError, NotExactError
from core_sdk.loop import _rng as rng
from core_sdk.loop._loading._source import is_stateful
from core_sdk.loop._orders import Listed, ListedBatches, Order, Selected, Sequential, Shuffled, Weighted
from core_sdk.loop._plan import Position
from core_sdk.loop._samplers import DistributedSampler as PartSampler
from core_sdk.loop._samplers import RepeatSampler, SkipSampler, chain, is_endless

Form = Literal["samples", "one sample", "indices", "batch"]
"""The way to fetch from a dataset: samples by their indices; one sample by its index, or all samples at once by a list
of indices (both with `batch_size=None`); or the samples of a batch that a batch sampler gives."""


@dataclass(frozen=True)
class Sampling:
    """The way in which a loader chooses its samples."""

    order: Order
    batch_size: int
    """The number of units in one rank's part of a batch."""
    drop_last: bool
    form: Form
    drawn: DrawnSampler | None
    """The sampler, if the order is a list of what it draws."""
    start: Position
    """The position at which a training begins, after what a sampler of ours skips."""


def read_sampling(loader: DataLoader[Any], seed: int, exact: bool, is_divided: bool) -> Sampling:
    """Reads how a loader chooses its samples. `is_divided`: the batches will be divided among several ranks.

    Raises `ValueError` for a sampler that is divided already, `DataError` for one that gives nothing or has no end, and
    `NotExactError` for one without a fixed order.
    """
    form: Form = "samples" if loader.batch_sampler is not None else "indices"
    batch_sampler, skipped = _one_round(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
    is_of_torch = _kind(batch_sampler) == "BatchSampler"
    sampler, skipped_samples = _one_round(batch_sampler.sampler if is_of_torch else batch_sampler)
    batch_size, drop_last = (batch_sampler.batch_size, batch_sampler.drop_last) if is_of_torch else (1, False)
    start = Position(skipped.epoch + skipped_samples.epoch, skipped.offset * batch_size + skipped_samples.offset)
    if not is_of_torch:
        form = "batch" if loader.batch_sampler is not None else "one sample"
    num_most = 16 * max(4096, _length_if_any(loader.dataset), _length_if_any(sampler))
    if form == "batch":
        drawn = DrawnSampler(sampler, seed, exact, is_divided, num_most)
        return Sampling(ListedBatches(drawn.length, drawn.draw), 1, False, form, drawn, start)
    order, drawn_or_none = _order(sampler, seed, exact, is_divided, num_most)
    return Sampling(order, batch_size, drop_last, form, drawn_or_none, start)


def _one_round(sampler: Any) -> tuple[Any, Position]:
    """Returns the sampler that an endless sampler of ours repeats, and the position at which it begins.

    The plan repeats the order itself. The samples that the first round skips are not part of the order, but only say
    where a training begins. So a training that resumes from a state elsewhere has the same order.
    """
    num_skipped = 0
    while isinstance(sampler, (SkipSampler, RepeatSampler)) and is_endless(sampler):
        num_skipped += sampler.skip if isinstance(sampler, SkipSampler) else 0
        sampler = sampler.sampler
    return sampler, Position(*divmod(num_skipped, _length(sampler))) if num_skipped else Position()


def _order(sampler: Any, seed: int, exact: bool, is_divided: bool, num_most: int) -> tuple[Order, DrawnSampler | None]:
    """Returns the order of a sampler. Samplers of torch and torchdata become functions of the position.

    Their own state is ignored. What any other sampler draws is listed.
    """
    match _kind(sampler):
        case "SequentialSampler":
            return Sequential(len(sampler)), None
        case "DistributedSampler" | "StatefulDistributedSampler" if is_divided or sampler.num_replicas == 1:
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
    drawn = DrawnSampler(sampler, seed, exact, is_divided, num_most)
    return Listed(drawn.length, drawn.draw), drawn


def _kind(sampler: Any) -> str:
    """Returns the name of a class of torch or torchdata; "" for a class of the user's, which may do anything."""
    kind = type(sampler)
    return kind.__name__ if kind.__module__.partition(".")[0] in ("torch", "torchdata") else ""


class DrawnSampler:
    """Draws all that a sampler of the user's gives in an epoch. Epochs may differ in length.

    Before it draws, it seeds the generators by the epoch, and calls `set_epoch(epoch)` if the sampler has it. A sampler
    with `state_dict()` and `load_state_dict()` gets the state that it had at the start of the epoch. An endless sampler
    continues in each epoch where the last one has ended.
    """

    def __init__(self, sampler: Any, seed: int, exact: bool, is_divided: bool, num_most: int) -> None:
        """A sampler that gives `num_most` in one epoch is taken to have no end."""
        self._sampler = sampler
        self._seed = seed
        self._num_most = num_most
        self._is_endless = is_endless(sampler)
        self._running: Iterator[Any] = iter(())
        """The iterator over an endless sampler. It gives the epoch after `_drawn_epoch` next."""
        self._drawn_epoch: int | None = None
        self._is_stateful = is_stateful(sampler)
        self._states = {0: copy.deepcopy(sampler.state_dict())} if self._is_stateful else {}
        if is_divided:
            _check_whole(sampler)
        first = self.draw(0)
        self.length = len(first)
        """The number of what the sampler gives in the first epoch."""
        if exact and not self._is_stateful and self.draw(0) != first:
            raise NotExactError(
                f"{type(sampler).__name__} gives another order each time that it is asked for the same epoch",
                "give it set_epoch(epoch), or state_dict() and load_state_dict(), or draw from a global generator",
            )

    def draw(self, epoch: int) -> list[Any]:
        """Draws an epoch. Raises `DataError` if it is empty, or has no end."""
        if self._is_endless:
            return self._draw_on(epoch)
        if not self._is_stateful:
            return self._draw(epoch)
        known = self._last_known(epoch)
        self._sampler.load_state_dict(copy.deepcopy(self._states[known]))
        for each in range(known, epoch + 1):
            drawn = self._draw(each)
            self._states[each + 1] = copy.deepcopy(self._sampler.state_dict())
        return drawn

    def state(self, epoch: int) -> dict[str, Any] | None:
        """Returns the sampler's latest known state at the start of `epoch` or an earlier one, for `load()`.

        Returns None for a sampler without states.
        """
        if not self._is_stateful:
            return None
        known = self._last_known(epoch)
        self._states = {each: state for each, state in self._states.items() if each in (0, known) or each > epoch}
        return {"epoch": known, "state": self._states[known]}

    def load(self, state: dict[str, Any]) -> None:
        self._states = {0: self._states[0], state["epoch"]: state["state"]}

    def _last_known(self, epoch: int) -> int:
        return max(each for each in self._states if each <= epoch)

    def _draw_on(self, epoch: int) -> list[Any]:
        """Draws all epochs up to this one. Begins again with the first if this one has been drawn already."""
        first = 0 if self._drawn_epoch is None or self._drawn_epoch >= epoch else self._drawn_epoch + 1
        for each in range(first, epoch + 1):
            with rng.seeded(self._seed, "sampler", each):
                self._seed_generators(each)
                if each == 0:
                    self._set_epoch(0)
                    self._running = iter(self._sampler)
                drawn = [_plain(key) for key in islice(self._running, _length(self._sampler))]
        self._drawn_epoch = epoch
        return drawn

    def _draw(self, epoch: int) -> list[Any]:
        with rng.seeded(self._seed, "sampler", epoch):
            self._seed_generators(epoch)
            self._set_epoch(epoch)
            drawn = [_plain(key) for key in islice(self._sampler, self._num_most)]
        if not 0 < len(drawn) < self._num_most:
            raise DataError(
                f"{type(self._sampler).__name__} gives {f'{self._num_most} or more' if drawn else 'nothing'} in epoch "
                f"{epoch}: let it give one round of the data each time that it is iterated over"
            )
        return drawn

    def _seed_generators(self, epoch: int) -> None:
        for sampler in chain(self._sampler):
            if isinstance(generator := getattr(sampler, "generator", None), torch.Generator):
                generator.manual_seed(rng.key(self._seed, "generator", epoch))

    def _set_epoch(self, epoch: int) -> None:
        for sampler in chain(self._sampler):
            if callable(set_epoch := getattr(sampler, "set_epoch", None)):
                set_epoch(epoch)


def _length_if_any(data: Any) -> int:
    """Returns 0 for data without a length: they have no `__len__()`, or one that is not implemented."""
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return 0


def _plain(key: Any) -> Any:
    return key.tolist() if isinstance(key, torch.Tensor) else key


def _check_whole(sampler: Any) -> None:
    for inner in chain(sampler):
        num_parts = 1
        if isinstance(inner, DistributedSampler):
            num_parts = inner.num_replicas
        elif isinstance(inner, PartSampler):
            num_parts = inner.num_workers
        if num_parts > 1:
            raise ValueError(
                f"{type(sampler).__name__} gives the part of one rank of {num_parts}, but resumable() itself "
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
