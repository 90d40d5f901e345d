"""Stores the state of a training in a checkpoint, also while the training goes on, and reads its tensors again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from core_sdk.loop._host_memory import HostMemory

if TYPE_CHECKING:
    from core_sdk._distributed import Channel
    from core_sdk.core import Context
    from core_sdk.loop._sharded_tensors import Parts, ShardPlanner

SHARDED_FILES = "sharded_tensors."

Held: TypeAlias = "tuple[dict[str, Any], Parts | None]"
"""The content that a rank writes: values by their file names, and its parts of tensors spread over ranks."""


class StateSaver:
    """Stores the states of a training, one after the other."""

    def __init__(self) -> None:
        self._host_memory = HostMemory()
        self._shard_planner: ShardPlanner | None = None

    def save(
        self,
        core_context: Context,
        metadata: dict[str, Any],
        hold: Callable[[Path], Held],
        *,
        shard: bool,
        wait: bool,
        finish: Callable[[Path], object] = lambda directory: None,
    ) -> str:
        """Stores a checkpoint, and returns its storage id on every rank. Collective.

        `hold` returns what to write, and `finish` is called once it is written. With `shard` each rank calls them, else
        the chief. Without `wait`, what is held is copied in host memory and written in the background.
        """

        def write(held: Held, directory: Path) -> None:
            files, shards = held
            if shards is not None:
                shards.write(directory)
            for name, value in files.items():
                torch.save(value, directory / name)
            finish(directory)

        def store() -> str:
            with core_context.checkpoint.store_path(
                metadata, shard=shard, wait=wait, write_later=lambda path: write(held, path)
            ) as (directory, storage_id):
                held = hold(directory)
                if not wait:
                    held = self._host_memory.copy(held)
            return storage_id

        if shard:
            return store()
        return core_context.distributed.channel.broadcast_outcome(store, is_patient=True)

    def take_out(self, state: Any, channel: Channel) -> tuple[Any, Parts]:
        """Returns the state without the tensors that are spread over ranks, and this rank's parts. Collective."""
        from core_sdk.loop._sharded_tensors import ShardPlanner  # slow to import

        self._shard_planner = self._shard_planner or ShardPlanner()
        return self._shard_planner.take_out(state, channel)


def put_back(
    state: dict[str, Any], directory: Path, present: Callable[[], Any], *, is_sharded: bool, part: str = ""
) -> dict[str, Any]:
    """Returns the state with the tensors that ranks have written in parts, spread as in what `present` returns.

    `is_sharded` says whether any are spread here. With `part` only that part's tensors are read.
    """
    if not is_sharded and not any(directory.glob(f"{SHARDED_FILES}*")):
        return state
    from core_sdk.loop import _sharded_tensors  # slow to import

    complete: dict[str, Any] = _sharded_tensors.put_back(state, directory, present(), within=(part,) if part else ())
    return complete
