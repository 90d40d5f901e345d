"""Decides which checkpoints of a training are kept while it runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from core_sdk._ground.records import KeepEvery, from_json
from core_sdk._home.checkpoints import RecordedCheckpoint, kept_for_ever

Order = Literal["max", "min"]


@dataclass(frozen=True)
class CheckpointConfig:
    """The rule by which checkpoints of a training are kept. The newest one is always kept."""

    num_to_keep: int | None = None
    """The number of checkpoints that are kept; None keeps all."""
    checkpoint_score_attribute: str | None = None
    """The metric by which the best ones are kept; None keeps the newest ones."""
    checkpoint_score_order: Order = "max"
    keep_every: Mapping[str, float] | None = None
    """`{"steps": N}` or `{"hours": N}`: the first at or after each multiple of so many reports, or hours, is kept."""

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and self.num_to_keep < 1:
            raise ValueError(f"num_to_keep is {self.num_to_keep}; it must be at least 1, or None to keep all")
        if self.checkpoint_score_order not in get_args(Order):
            raise ValueError(f"checkpoint_score_order is {self.checkpoint_score_order!r}; it must be 'max' or 'min'")
        if self.keep_every is not None:
            KeepEvery.checked(self.keep_every)


def to_delete(checkpoints: Sequence[RecordedCheckpoint], config: CheckpointConfig) -> list[str]:
    """Returns the storage ids of the checkpoints to delete. `checkpoints` are in the order in which they were stored.

    The best ones, pinned ones, the ones that `keep_every` keeps, and the newest one, from which the training would go
    on, are kept. A checkpoint without the score, or with one that is not finite, is worse than all others.
    """
    kept = {each.record.storage_id for each in [*best(checkpoints, config), *checkpoints[-1:]]}
    if config.keep_every is not None:
        kept |= kept_for_ever(checkpoints, KeepEvery.checked(config.keep_every)).keys()
    ids = [each.record.storage_id for each in checkpoints if each.pin is None]
    return [storage_id for storage_id in ids if storage_id not in kept]


def best(checkpoints: Sequence[RecordedCheckpoint], config: CheckpointConfig) -> list[RecordedCheckpoint]:
    """Returns the best `num_to_keep` checkpoints, the best one last. Of equal ones the newer is better."""
    ranked = sorted(checkpoints, key=lambda each: _score(each, config))
    return ranked if config.num_to_keep is None else ranked[-config.num_to_keep :]


def _score(checkpoint: RecordedCheckpoint, config: CheckpointConfig) -> float:
    if config.checkpoint_score_attribute is None:
        return 0.0
    metrics = from_json(checkpoint.record.metadata.get("metrics") or {})
    value = metrics.get(config.checkpoint_score_attribute)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return -math.inf
    return value if config.checkpoint_score_order == "max" else -value
