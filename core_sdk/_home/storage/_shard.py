"""The files that each rank has for a checkpoint, and their union: rules without I/O."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core_sdk._ground.records import FileEntry


class Shard(msgspec.Struct, frozen=True):
    """The files and directories of one rank. Names are relative to the checkpoint; a directory's name ends with "/"."""

    files: dict[str, FileEntry]
    directories: list[str]
    links: dict[str, str] = {}
    """The links to directories of this rank, with their targets."""


class ShardUnion(msgspec.Struct, frozen=True):
    """The files and directories of all ranks, each name once."""

    files: dict[str, FileEntry]
    directories: list[str]
    owners: dict[str, int]
    """The rank whose copy of a file is kept."""
    ranks: tuple[int, ...]
    """The ranks that have files, kept or not."""
    links: dict[str, str] = {}

    def names_of(self, rank: int) -> list[str]:
        return [name for name, owner in self.owners.items() if owner == rank]


def file_conflicts(shards: Sequence[Shard]) -> dict[str, tuple[int, ...]]:
    """Returns the names under which ranks have different things, with these ranks.

    Equal files and links do not conflict, nor do directories of one name. A file and a directory do.
    """
    uses: dict[str, dict[int, FileEntry | str | None]] = {}
    for rank, shard in enumerate(shards):
        for name in shard.directories:
            uses.setdefault(name.removesuffix("/"), {})[rank] = None
        for name, entry in shard.files.items():
            uses.setdefault(name, {})[rank] = entry
        for name, target in shard.links.items():
            uses.setdefault(name, {})[rank] = target
    return {name: tuple(uses[name]) for name in sorted(uses) if len(set(uses[name].values())) > 1}


def unite(shards: Sequence[Shard]) -> ShardUnion:
    """Returns the union of shards without conflicts. Of equal files it has the lowest rank's."""
    owners: dict[str, int] = {}
    for rank, shard in enumerate(shards):
        for name in shard.files:
            owners.setdefault(name, rank)
    return ShardUnion(
        files={name: shards[owners[name]].files[name] for name in sorted(owners)},
        directories=sorted({name for shard in shards for name in shard.directories}),
        owners=owners,
        ranks=tuple(rank for rank, shard in enumerate(shards) if shard.files),
        links={name: target for shard in shards for name, target in sorted(shard.links.items())},
    )
