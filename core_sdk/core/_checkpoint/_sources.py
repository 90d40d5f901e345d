"""The directories that ranks upload together."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from core_sdk._home.storage import Selector


class RankDirectory(msgspec.Struct, frozen=True):
    """The description of a rank's directory that the other ranks get."""

    directory: tuple[str, str, int, int]
    """Host, real path, device and inode. On another host, whose disk may be a copy, the last three mean nothing."""
    has_selector: bool


def describe_source(
    ckpt_dir: str | os.PathLike[str] | None, selector: Selector | None, host: str
) -> RankDirectory | None:
    """Returns the description of a rank's directory, or None if it has none. Raises `OSError` if it does not exist."""
    if ckpt_dir is None:
        if selector is not None:
            raise RuntimeError("upload() got a selector and no directory: pass ckpt_dir, or no selector")
        return None
    real_path = os.path.realpath(ckpt_dir, strict=True)
    status = os.stat(real_path)  # noqa: PTH116
    return RankDirectory((host, os.fsdecode(real_path), status.st_dev, status.st_ino), selector is not None)


def contributors(sources: Sequence[RankDirectory | None]) -> set[int]:
    """Returns the ranks that store their directory.

    If several ranks have the same directory, the lowest rank without a selector stores it, for all of them. If all of
    them have selectors, each stores its selection.
    """
    wholes: dict[tuple[str, str, int, int], int] = {}
    for rank, source in enumerate(sources):
        if source is not None and not source.has_selector:
            wholes.setdefault(source.directory, rank)
    return {
        rank for rank, source in enumerate(sources) if source is not None and wholes.get(source.directory, rank) == rank
    }
