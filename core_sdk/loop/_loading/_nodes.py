"""Loaders of `torchdata.nodes`, whose nodes keep a state each."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from core_sdk.errors import NotExactError
from core_sdk.loop import _rng as rng
from core_sdk.loop._loading._source import is_stateful

# The samples by which two orders are told apart, and those that come before the state in the trial of a sampler.
_NUM_TRIED = 100
_NUM_BEFORE = 3

_END = object()


def is_nodes_loader(loader: Any) -> bool:
    return type(loader).__module__.startswith("torchdata.nodes")


def prepare_nodes(loader: Any, *, exact: bool) -> None:
    """Lets the nodes of a loader go on, after a state was loaded, as they do without a stop.

    Raises `NotExactError` if this must be `exact`, and a sampler would not give the same samples.
    """
    # The loader would read the first batch while it begins, which is too early for its random numbers.
    loader.restart_on_stop_iteration = False
    for node in _nodes(loader.root):
        if isinstance(node.reset, _EpochReset):
            continue
        if hasattr(node, "EPOCH_KEY"):
            node.reset = _EpochReset(node)
        if exact and (sampler := getattr(node, "sampler", None)) is not None:
            _check(sampler, f"{type(sampler).__name__} of a {type(node).__name__}")


class _EpochReset:
    """Stands for `reset()` of a node that counts epochs.

    It sets the epoch of a sampler before the sampler's state is loaded, which the node itself does not. As long as the
    sampler was not read in that epoch, the state still belongs to an earlier epoch, and is not loaded. And the node
    counts the epoch as begun if it was read before the stop. Itself it does so only if it is read after a resume, and
    one of several sources may not be until the epoch ends.
    """

    def __init__(self, node: Any) -> None:
        self._node = node
        self._reset = node.reset
        self._sampler: Any = getattr(node, "sampler", ())
        self._begun: Any = copy.deepcopy(self._sampler.state_dict()) if is_stateful(self._sampler) else None
        self._was_read = False

    def __call__(self, initial_state: dict[str, Any] | None = None) -> None:
        node = self._node
        if initial_state is None and self._was_read:
            with contextlib.suppress(StopIteration):
                node.next()
        self._was_read = initial_state is not None and initial_state[node.NUM_YIELDED_KEY] > 0
        if initial_state is not None and callable(set_epoch := getattr(self._sampler, "set_epoch", None)):
            set_epoch(initial_state[node.EPOCH_KEY])
            if self._begun is not None and not self._was_read:
                initial_state = {**initial_state, node.SAMPLER_KEY: copy.deepcopy(self._begun)}
        self._reset(initial_state)


def _check(sampler: Any, what: str) -> None:
    """Raises `NotExactError` if the sampler would not go on with the same samples.

    A node loads a sampler's state. Without one, it keeps the number of samples that were drawn, and asks the sampler
    for the same order again.
    """
    if is_stateful(sampler):
        if not _goes_on(sampler):
            raise NotExactError(
                f"{what} gives other samples after its state was loaded than without a stop",
                "let state_dict() hold the position within the epoch, and all else that the order depends on",
            )
    elif not callable(getattr(sampler, "set_epoch", None)) and _drawn(sampler, 0) != _drawn(sampler, 1):
        raise NotExactError(
            f"{what} gives another order each time",
            "give it set_epoch(epoch), or state_dict() and load_state_dict(); torch's DistributedSampler has it",
        )


def _drawn(sampler: Any, turn: int) -> list[Any]:
    with rng.seeded("nodes", turn):
        return [*sampler]


def _goes_on(sampler: Any) -> bool:
    """Tries whether the sampler gives the same samples in epoch 1 after its state was loaded as without a stop."""
    begun = copy.deepcopy(sampler.state_dict())
    set_epoch = getattr(sampler, "set_epoch", lambda epoch: None)
    set_epoch(1)
    samples = _read_on(sampler, 0)
    before = [*islice(samples, _NUM_BEFORE)]
    state = copy.deepcopy(sampler.state_dict())
    expected = [*islice(samples, _NUM_TRIED)]
    sampler.load_state_dict(state)
    found = [*islice(_read_on(sampler, len(before)), _NUM_TRIED)]
    set_epoch(0)
    sampler.load_state_dict(begun)
    return found == expected


def _read_on(sampler: Any, position: int) -> Iterator[Any]:
    """Yields samples with random numbers that depend on their positions, as for batches."""
    with rng.seeded("nodes"):
        samples = iter(sampler)
    for each in count(position):
        with rng.seeded("nodes", each):
            sample = next(samples, _END)
        if sample is _END:
            return
        yield sample


def _nodes(root: Any) -> list[Any]:
    """Returns a node and all nodes from which it reads, each of them once."""
    found = [root]
    for node in found:
        for value in vars(node).values():
            for source in value.values() if isinstance(value, dict) else [value]:
                if hasattr(source, "get_state") and not any(source is each for each in found):
                    found.append(source)
    return found
