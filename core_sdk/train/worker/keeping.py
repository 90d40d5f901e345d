"""Which checkpoints of a training are kept while it runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core_sdk.tracking.checkpoints import RecordedCheckpoint
from core_sdk.train._configs import CheckpointConfig


def to_delete(checkpoints: Sequence[RecordedCheckpoint], config: CheckpointConfig) -> list[str]:
    """The storage ids of those that are not among the best, of `checkpoints` in the order in which they were stored.

    Never the newest one, from which the training would go on, and none that is pinned. A checkpoint without the score,
    or with NaN, is worse than all others.
    """
    if config.num_to_keep is None:
        return []
    ranked = sorted(enumerate(checkpoints), key=lambda each: (_score(each[1], config), each[0]), reverse=True)
    kept = {index for index, _ in ranked[: config.num_to_keep]} | {len(checkpoints) - 1}
    return [each.record.storage_id for index, each in enumerate(checkpoints) if index not in kept and each.pin is None]


def _score(checkpoint: RecordedCheckpoint, config: CheckpointConfig) -> float:
    if config.checkpoint_score_attribute is None:
        return 0.0
    metrics = checkpoint.record.metadata.get("metrics") or {}
    value = metrics.get(config.checkpoint_score_attribute)
    if not isinstance(value, int | float) or math.isnan(value):
        return -math.inf
    return value if config.checkpoint_score_order == "max" else -value
