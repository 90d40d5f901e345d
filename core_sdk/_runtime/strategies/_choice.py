"""Chooses the strategy of a training."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch import distributed as dist

from core_sdk._runtime.strategies._ddp import DdpStrategy
from core_sdk._runtime.strategies._horovod import HorovodStrategy
from core_sdk._runtime.strategies._strategy import NoStrategy, Strategy, UntouchedStrategy

if TYPE_CHECKING:
    from core_sdk.core import DistributedContext


def default_strategy(distributed: DistributedContext) -> Strategy:
    """Returns DDP if torch's process group has begun, Horovod if that has begun, and no strategy for a single rank.

    Raises `RuntimeError` for several ranks if neither has begun.
    """
    if distributed.size == 1:
        return NoStrategy()
    if dist.is_available() and dist.is_initialized():
        return DdpStrategy()
    hvd: Any = sys.modules.get("horovod.torch")
    if hvd is not None and hvd.is_initialized():
        return HorovodStrategy(hvd)
    raise RuntimeError(
        f"there are {distributed.size} ranks, and nothing that would average their gradients: call "
        "torch.distributed.init_process_group() or horovod.torch.init() before pytorch.init(), or leave out "
        "distributed=, so that pytorch.init() does it"
    )


def named_strategy(name: str | None, default: Strategy) -> Strategy:
    """Returns the strategy that `wrap_model(strategy=…)` names. Raises `ValueError` if it cannot be used here."""
    if name is None or name == default.name or isinstance(default, UntouchedStrategy):
        return default
    if name == "none":
        return NoStrategy()
    if name == "fsdp" and default.name != "horovod":
        from core_sdk._runtime.strategies._fsdp import FsdpStrategy  # slow to import

        return FsdpStrategy()
    others = ["none", default.name, *(["fsdp"] if default.name != "horovod" else [])]
    raise ValueError(f"strategy is {name!r}; here it must be None, or one of {', '.join(dict.fromkeys(others))}")


def worker_strategy(name: str | None, num_workers: int) -> Strategy:
    """Returns the strategy that `prepare_model(parallel_strategy=…)` names, for a worker of torch's process group.

    Raises `ValueError` for an unknown name.
    """
    if name not in ("ddp", "fsdp", "fsdp2", None):
        raise ValueError(f"parallel_strategy is {name!r}; it must be 'ddp', 'fsdp', 'fsdp2' or None")
    if num_workers == 1 or name is None:
        return UntouchedStrategy()
    if name == "ddp":
        return DdpStrategy()
    from core_sdk._runtime.strategies._fsdp import Fsdp1Strategy, FsdpStrategy  # slow to import

    return Fsdp1Strategy() if name == "fsdp" else FsdpStrategy()
