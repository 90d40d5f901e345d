"""Free space on a disk."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from core_sdk._ground.files import explained, has_free_inodes, is_full
from core_sdk._home.storage._storage import Staging
from core_sdk._home.storage._tree import file_sizes
from core_sdk.errors import CheckpointError, CheckpointNotStoredError, NotEnoughSpaceError

# A write that does not fit fills the disk up to less than a block.
_FULL_BYTES = 64 << 10


@contextlib.contextmanager
def space_for(needed_bytes: int, directory: Path) -> Iterator[None]:
    """Raises `NotEnoughSpaceError` if the disk of `directory` is too full, before the block or within it."""
    free_bytes = shutil.disk_usage(directory).free
    if needed_bytes > free_bytes:
        raise NotEnoughSpaceError(directory, needed_bytes, free_bytes)
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise not_enough_space(directory, needed_bytes) from error


def explained_by_disk(error: Exception, staging: Staging, storage_id: str, needed_bytes: int) -> CheckpointError | None:
    """Returns the error that tells why files could not be staged, or None if the disk does not explain it.

    Libraries have words of their own for it: torch's are `unexpected pos 704 vs 598`, NumPy's `1000 requested and 598
    written`. `needed_bytes` is the size of the checkpoint, as far as it is known.
    """
    causes = [cause for cause in (error, error.__cause__, error.__context__) if cause is not None]
    is_of_system = any(is_full(cause) or _is_too_large(cause) for cause in causes)
    is_unclear = isinstance(error, RuntimeError) or (isinstance(error, OSError) and error.errno is None)
    if not is_of_system and not is_unclear and "(os error 28)" not in str(error):  # Rust's words
        return None
    try:
        free_bytes = shutil.disk_usage(staging.path).free
        sizes = file_sizes(staging.path)
    except OSError:
        return None
    limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    is_at_limit = limit_bytes != resource.RLIM_INFINITY and max(sizes, default=0) >= limit_bytes
    if is_at_limit or any(map(_is_too_large, causes)):
        reason = explained(OSError(errno.EFBIG, os.strerror(errno.EFBIG))).strerror or ""
        return CheckpointNotStoredError(storage_id, str(staging.disk), reason)
    if free_bytes < _FULL_BYTES or any(map(is_full, causes)):
        return not_enough_space(staging.disk, max(needed_bytes, sum(sizes)))
    return None


def not_enough_space(directory: Path, needed_bytes: int) -> NotEnoughSpaceError:
    """Returns the error for a disk that has just refused a file."""
    free_bytes = shutil.disk_usage(directory).free
    return NotEnoughSpaceError(directory, needed_bytes, free_bytes, has_free_inodes=has_free_inodes(directory))


def _is_too_large(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EFBIG
