"""Loaders of `torchdata.nodes`, whose nodes keep a state each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_sdk.errors import NotExactError
from core_sdk.loop import rng
from core_sdk.loop.loading._source import is_stateful


def is_nodes_loader(loader: Any) -> bool:
    return type(loader).__module__.startswith("torchdata.nodes")


def check_samplers(loader: Any) -> None:
    """Raises `NotExactError` if a node draws its samples by a sampler that gives another order each time.

    A node keeps the number of samples that were drawn, and asks the sampler for the same order again.
    """
    for node in _nodes(loader.root):
        sampler = getattr(node, "sampler", None)
        if sampler is None or is_stateful(sampler) or callable(getattr(sampler, "set_epoch", None)):
            continue
        if _drawn(sampler, 0) != _drawn(sampler, 1):
            raise NotExactError(
                f"{type(sampler).__name__} of a {type(node).__name__} gives another order each time",
                "give it set_epoch(epoch), or state_dict() and load_state_dict(); torch's DistributedSampler has it",
            )


def _drawn(sampler: Any, turn: int) -> list[Any]:
    with rng.seeded("nodes", turn):
        return [*sampler]


def _nodes(node: Any) -> Iterator[Any]:
    """Yields a node and all nodes from which it reads."""
    yield node
    for value in vars(node).values():
        for source in value.values() if isinstance(value, dict) else [value]:
            if hasattr(source, "get_state") and source is not node:
                yield from _nodes(source)
