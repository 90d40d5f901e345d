"""Stores the checkpoint of a report, from rank 0 alone or from all ranks together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core_sdk.core import Context


def store(context: Context, directory: Path, metadata: dict[str, Any], *, is_shared: bool, wait: bool) -> str:
    """Stores the files, and returns the storage id.

    With `is_shared` this is collective, and of files with the same name the one of the lowest rank is stored.
    """
    if not is_shared:
        return context.checkpoint.upload(directory, metadata, wait=wait)
    distributed = context.distributed
    names = distributed.channel.allgather_outcome(lambda: names_in(directory))
    own = own_names(names, distributed.rank)
    if not (own or distributed.is_chief):
        return context.checkpoint.upload(None, metadata, shard=True, wait=wait)
    return context.checkpoint.upload(
        directory, metadata, shard=True, selector=lambda name: name in own or name.endswith("/"), wait=wait
    )


def own_names(names: Sequence[Sequence[str]], rank: int) -> set[str]:
    """Returns the names that this rank stores: its own names that no lower rank has. Pure."""
    return set(names[rank]).difference(*names[:rank])


def names_in(directory: Path) -> list[str]:
    return sorted(
        os.path.relpath(Path(folder, file), directory) for folder, _, files in os.walk(directory) for file in files
    )


def checked_directory(path: str) -> Path:
    """Returns the path of a directory. Raises `ValueError` if it is none."""
    directory = Path(path)
    if not directory.is_dir():
        problem = "is no directory" if directory.exists() else "does not exist"
        raise ValueError(
            f"the checkpoint's directory {path} {problem}: report() copies it, so it must be there until report() has "
            "returned"
        )
    return directory
