"""A checkpoint being written for a bucket: in a local directory, and from there on its way."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from core_sdk.errors import CheckpointNotStoredError, NotEnoughSpaceError
from core_sdk.records import Manifest, to_json
from core_sdk.storage._checksum import checksum, in_threads
from core_sdk.storage._shard import Shard, ShardUnion, unite
from core_sdk.storage._staging_area import LockedDirectory
from core_sdk.storage._storage import Selector, ShardStaging, Staging
from core_sdk.storage._tree import Tree, source_tree, staged_tree
from core_sdk.storage.bucket._save import BucketSave


class BucketStaging(Staging):
    """A checkpoint of one process."""

    def __init__(self, place: LockedDirectory, save: BucketSave) -> None:
        self.path = place.path
        self._local = LocalFiles(place)
        self._save = save

    def fill(self, source: Path, selector: Selector | None = None) -> None:
        self._local.fill(source_tree(source, selector))

    def commit(self, metadata: Mapping[str, Any]) -> Manifest:
        stored_metadata = to_json(metadata, "metadata")
        shard = self._local.seal()
        self._save.send({name: (self.path / name, entry) for name, entry in shard.files.items()})
        manifest = self._save.publish(unite([shard]), stored_metadata)
        self.discard()
        return manifest

    def cancel(self) -> None:
        self._save.cancel()

    def discard(self) -> None:
        if self._local.is_ours:
            self._save.withdraw()
        self._local.discard()


class BucketShardStaging(ShardStaging):
    """One rank's files, which it sends itself: no disk is shared, and the chief only publishes."""

    def __init__(self, place: LockedDirectory, save: BucketSave, address: str) -> None:
        self.path = place.path
        self.address = address
        self._local = LocalFiles(place)
        self._save = save
        self._shard = Shard({}, [])

    def check_reachable(self, address: str) -> None:
        if address != self.address:
            storage_id = self.address.rpartition("/")[2]
            raise CheckpointNotStoredError(
                storage_id, self.address, f"rank 0 stores it as {address}. All ranks need the same checkpoint_storage"
            )

    def fill(self, source: Path, selector: Selector | None = None) -> None:
        self._local.fill(source_tree(source, selector))

    def seal(self) -> Shard:
        self._shard = self._local.seal()
        return self._shard

    def contribute(self, names: Sequence[str], address: str) -> None:
        self._save.send({name: (self.path / name, self._shard.files[name]) for name in names})

    def commit(self, union: ShardUnion, metadata: Mapping[str, Any]) -> Manifest:
        return self._save.publish(union, to_json(metadata, "metadata"))

    def cancel(self) -> None:
        self._save.cancel()

    def discard(self) -> None:
        if self._local.is_ours:
            self._save.withdraw()
        self._local.discard()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        # Ranks other than the chief do not hear of the commit: that nothing was raised tells them.
        if exc_val is None and self._local.is_ours:
            self._save.settle()
            self._local.discard()
        else:
            self.discard()


class LocalFiles:
    """What is staged on this machine's disk until it is in the bucket."""

    def __init__(self, place: LockedDirectory) -> None:
        self._place = place

    @property
    def is_ours(self) -> bool:
        """Not in a forked child."""
        return self._place.is_ours

    def fill(self, tree: Tree) -> None:
        free_bytes = shutil.disk_usage(self._place.path).free
        if tree.size_bytes > free_bytes:
            raise NotEnoughSpaceError(self._place.path, tree.size_bytes, free_bytes)
        with self._full_disk_told(tree.size_bytes):
            tree.copy_to(self._place.path)

    def seal(self) -> Shard:
        """What the script wrote, with its checksums."""
        with self._full_disk_told(0):
            tree = staged_tree(self._place.path)
        return seal_tree(tree, {name: self._place.path / name for name in tree.files})

    def discard(self) -> None:
        self._place.leave()

    @contextlib.contextmanager
    def _full_disk_told(self, needed_bytes: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            free_bytes = shutil.disk_usage(self._place.path).free
            raise NotEnoughSpaceError(self._place.path, needed_bytes, free_bytes) from error


def seal_tree(tree: Tree, paths: Mapping[str, Path]) -> Shard:
    """The files as they are now."""
    names = sorted(tree.files)
    with in_threads(checksum, [paths[name] for name in names]) as entries:
        return Shard(dict(zip(names, entries, strict=True)), tree.directories)
