"""The devices of a worker."""

from __future__ import annotations

import torch


def devices(local_rank: int, *, use_gpu: bool, num_gpus: int) -> list[torch.device]:
    """Returns the devices of a worker with `num_gpus` GPUs. Ray shows each worker only its own GPUs."""
    if not use_gpu:
        return [torch.device("cpu")]
    first, num_there = local_rank * max(1, num_gpus), torch.cuda.device_count()
    return [torch.device("cuda", index % num_there) for index in range(first, first + max(1, num_gpus))]
