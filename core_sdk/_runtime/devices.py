"""The devices of a rank."""

from __future__ import annotations

import torch


def devices(local_rank: int, num_gpus: int) -> list[torch.device]:
    """Returns the GPUs of a rank that has `num_gpus` of them, or the CPU if that is 0.

    A worker of Ray sees only its own GPUs, and counts them from 0. Raises `RuntimeError` if torch finds no GPU.
    """
    if num_gpus == 0:
        return [torch.device("cpu")]
    if not torch.cuda.is_available():
        raise RuntimeError("use_gpu=True, and torch finds no GPU where this worker runs")
    first, num_there = local_rank * num_gpus, torch.cuda.device_count()
    return [torch.device("cuda", index % num_there) for index in range(first, first + num_gpus)]


def use_own_gpu(local_rank: int) -> None:
    """Makes the GPU of a rank torch's current one. Does nothing without GPUs."""
    if torch.cuda.is_available():
        torch.cuda.set_device(devices(local_rank, 1)[0])


def current_device() -> torch.device:
    """Returns torch's current GPU, or the CPU without GPUs."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
