"""Digests of the values of a checkpoint's tensors, by which two checkpoints are compared."""

from __future__ import annotations

import google_crc32c
import torch

from core_sdk._analysis.tensors._reading import opened
from core_sdk._home.storage import Storage


def digests(storage: Storage, storage_id: str) -> dict[str, str]:
    """Returns a CRC-32C of each tensor by its file and its name. Files that cannot be read are left out."""
    with opened(storage, storage_id) as sources:
        return {
            f"{source.file}: {name}": _digest(source.load([name])[name])
            for source in sources
            for name, stored in source.tensors.items()
            if stored.layout == "strided"
        }


def _digest(tensor: torch.Tensor) -> str:
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    content = dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return f"{tensor.dtype} {tuple(tensor.shape)} {google_crc32c.value(content):08x}"
