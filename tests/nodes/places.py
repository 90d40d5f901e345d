"""A script for `test_frameworks_across_hosts`: the ranks of a framework tell who they are, and may then go on for ever.

places.py horovod|deepspeed|torch [for-ever]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

from core_sdk.core import DistributedContext

Sum = Callable[[torch.Tensor], torch.Tensor]


def begin_horovod() -> tuple[DistributedContext, Sum]:
    import horovod.torch  # each of these is installed in an environment of its own

    hvd: Any = horovod.torch
    hvd.init()
    return DistributedContext.from_horovod(hvd), lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, name="sum")


def begin_deepspeed() -> tuple[DistributedContext, Sum]:
    import deepspeed  # as above

    deepspeed.init_distributed()
    return DistributedContext.from_deepspeed(), _sum_by_torch


def begin_torch() -> tuple[DistributedContext, Sum]:
    torch.distributed.init_process_group("gloo")
    return DistributedContext.from_torch_distributed(), _sum_by_torch


def _sum_by_torch(tensor: torch.Tensor) -> torch.Tensor:
    torch.distributed.all_reduce(tensor)
    return tensor


BEGIN = {"horovod": begin_horovod, "deepspeed": begin_deepspeed, "torch": begin_torch}


def main(framework: str, goes_on: bool) -> None:
    context, total = BEGIN[framework]()
    with context as distributed:
        place = (os.uname().nodename, distributed.cross_rank, distributed.local_rank, distributed.local_size)
        places = distributed.allgather(place)
        print(int(total(torch.ones(1))), "ranks on", distributed.cross_size, "nodes:", *places, flush=True)
        while goes_on:
            total(torch.ones(1))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], "for-ever" in sys.argv)
