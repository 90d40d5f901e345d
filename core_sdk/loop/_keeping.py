"""Resolves what a training keeps of the checkpoint from which it goes on. All shapes understand the same words."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_sdk._ground.records import Keep


def kept_parts(keep: Keep, parts: Collection[str], *, models: Collection[str]) -> frozenset[str]:
    """Returns the names of the `parts` to keep, of which `models` hold the weights.

    Raises `ValueError` for a name that is none of the parts, and `TypeError` for what is no collection of names.
    """
    if isinstance(keep, str):
        if keep not in ("all", "model"):
            raise ValueError(f'keep is {keep!r}; it must be "all", "model", or a set of names, such as {{{keep!r}}}')
        return frozenset(parts if keep == "all" else models)
    if not isinstance(keep, Collection):
        raise TypeError(f'keep is {keep!r}; it must be "all", "model", or a set of names')
    if unknown := sorted(map(repr, set(keep) - set(parts))):
        raise ValueError(f"keep has {', '.join(unknown)}; it may have {', '.join(parts)}")
    return frozenset(keep)
