"""The seam between the Core API and the places that keep checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from core_sdk._ground.records import Manifest

if TYPE_CHECKING:
    from core_sdk._home.storage._shard import Shard, ShardUnion

Selector = Callable[[str], bool]
"""Accepts or rejects a name relative to the checkpoint; a directory's name ends with "/"."""


class Staging(ABC):
    """A rank's part of a checkpoint that is being written and is not yet visible.

    Each rank has one under the same storage id, and takes these steps: `check_reachable`; writing into `path`, or
    `fill`; `seal`; `contribute`. No rank begins a step before all ranks have completed the previous one. Then the chief
    calls `commit`. A single rank is its own chief. If the `with` block is left by an error, the checkpoint is
    discarded; leave it without an error only after the commit. Another thread may take the later steps and leave the
    block.
    """

    path: Path
    """The directory to write into; it exists and is empty."""
    disk: Path
    """The directory by which messages name the disk of `path`."""
    address: str
    """The place to which the ranks bring their files if this rank is the chief."""

    @abstractmethod
    def check_reachable(self, address: str) -> None:
        """Raises `CheckpointNotStoredError` if this rank could not bring its files to the chief's `address`."""

    @abstractmethod
    def fill(self, source: Path, selector: Selector | None = None, *, copy: bool = True) -> None:
        """Takes the files of the directory `source`.

        Without `copy` they may be read from there until they are contributed. If `source` is a downloaded checkpoint,
        its metadata and manifest are left out. Raises `ValueError`, `UnsafePathError`, `NotEnoughSpaceError`.
        """

    @abstractmethod
    def seal(self) -> Shard:
        """Takes the checksums of this rank's files, which must not change from now on.

        Raises `ValueError` or `UnsafePathError` for a file that cannot be kept, `NotEnoughSpaceError` or
        `CheckpointNotStoredError`. If `path` is a copy of another checkpoint, that one's metadata and manifest are left
        out.
        """

    @abstractmethod
    def contribute(self, names: Sequence[str], address: str) -> None:
        """Brings these files, and all directories, to the chief. Raises `CheckpointNotStoredError`."""

    @abstractmethod
    def commit(self, union: ShardUnion, metadata: Mapping[str, Any]) -> Manifest:
        """Makes the checkpoint exist, complete and durable. Only the chief calls it, after all ranks have contributed.

        Raises `TypeError` for metadata that JSON cannot hold, `NotEnoughSpaceError` or `CheckpointNotStoredError`.
        After an error no part of the checkpoint ever becomes visible.
        """

    @abstractmethod
    def discard(self) -> None:
        """Removes what has been written. Does nothing after a commit, or the second time."""

    @abstractmethod
    def cancel(self) -> None:
        """Makes the step that another thread is taking, and all later steps, fail soon, if that is possible."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.discard()


class Storage(ABC):
    """Checkpoints by storage id. Every call blocks until it is done.

    Every call that takes an id raises `UnsafePathError` for one that is not a plain name. Every call that reads raises
    `CheckpointNotFoundError`, `CheckpointTooNewError`, or `CheckpointDamagedError` naming the first bad file. Any call
    may raise a `StorageError`: the storage itself cannot be used, which says nothing about the checkpoint.
    """

    url: str
    """The address by which another process can open the storage."""

    @abstractmethod
    def check_writable(self) -> None:
        """Raises `StorageError` if it is clear now that nothing can be stored."""

    @abstractmethod
    def stage(self, storage_id: str, *, is_shared: bool = False) -> Staging:
        """Begins this rank's part of a checkpoint, `is_shared` by several ranks. Raises `CheckpointNotStoredError`."""

    @abstractmethod
    def open(self, storage_id: str, selector: Selector | None = None) -> AbstractContextManager[Path]:
        """Gives a directory with the verified files, for reading only.

        With a selector, the directory may also hold other files, which are not verified.
        """

    @abstractmethod
    def download(self, storage_id: str, directory: Path, selector: Selector | None = None) -> None:
        """Copies files into `directory`, each verified before it gets its name.

        Files that are there already, whole, are left alone. Metadata and manifest always come along, the manifest last.
        Raises `NotEnoughSpaceError`.
        """

    @abstractmethod
    def manifest(self, storage_id: str) -> Manifest:
        """Returns the checkpoint's manifest, without reading its files."""

    @abstractmethod
    def verify(self, storage_id: str, selector: Selector | None = None) -> Manifest:
        """Reads all files, or those selected, compares them with the manifest, and returns it."""

    @abstractmethod
    def check(self, storage_id: str) -> Manifest:
        """Does the same as `verify`, but compares the storage's own checksums, if it keeps any, and reads no files."""

    @abstractmethod
    def delete(self, storage_id: str, globs: Sequence[str] | None = None) -> dict[str, int]:
        """Removes a checkpoint, damaged or not; with `globs` ("*.pt", "optimizer", "**/*.tmp") only what they match.

        A matched directory goes with all it holds. Returns the names and sizes that remain; empty if it is gone.
        """

    @abstractmethod
    def deleting(self, storage_id: str) -> AbstractContextManager[None]:
        """Keeps other processes from reading the checkpoint during the block, which deletes it.

        Raises `CheckpointProtectedError` if a process on any machine reads it now: `open`, `download` and `verify` hold
        a lock or a lease, as far as the storage has locks, or lets this process write.
        """

    @abstractmethod
    def sweep(self) -> list[str]:
        """Removes what dead processes have left, and returns what was removed, for people."""

    @abstractmethod
    def begin_sweep(self) -> None:
        """Sweeps without waiting for a network: that goes on in a thread, which `close` ends.

        Never fails: a warning in the log says what stays, and why.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes connections; does nothing the second time."""
