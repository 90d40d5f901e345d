"""The backends of torch's process group."""

from __future__ import annotations


def usual_backend(uses_gpu: bool) -> str:
    """Returns NCCL for tensors on GPUs, and Gloo for all others. Does not import torch."""
    return "cpu:gloo,cuda:nccl" if uses_gpu else "gloo"
