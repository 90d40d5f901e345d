"""Stores the files of checkpoints.

`Storage` is the seam; `DirectoryStorage`, for a directory or a shared file system, is its first implementation:

    <root>/<storage_id>/…               the files of a checkpoint, as they were written
    <root>/<storage_id>/metadata.json   what the script said about it
    <root>/<storage_id>/.manifest.json  every file's size and CRC-32C; written last, it makes the checkpoint exist
    <root>/.staging/<token>/            a checkpoint that is being written or removed
    <root>/.staging/<token>.lock        locked by the process that does so, for as long as it lives

A checkpoint is written under `.staging`, fsynced, and renamed: it is whole or invisible. Removal renames it back first.
For a sharded checkpoint every rank has a directory under `.staging`; at the end the ranks rename their files into the
chief's. The next process that saves sweeps what a dead process left under `.staging`. A free lock shows at once that a
process of this machine is dead. A process of another machine also counts as alive until its directory has not changed
for an hour, since not every shared file system has locks.

Disks and file systems have checksums of their own. They are not enough: a tensor with a flipped bit loads without an
error, and the training goes on with it. Checksums are computed as fast as memory is read, so every restore verifies.
"""

from typing import TYPE_CHECKING

from core_sdk._ground.importing import lazy_names
from core_sdk._home.storage._manifest import without
from core_sdk._home.storage._names import METADATA_NAME, check_file_name, check_storage_id
from core_sdk._home.storage._open import check_storage, open_storage, storage_from_url
from core_sdk._home.storage._storage import Selector, Staging, Storage
from core_sdk._home.storage.directory._storage import DirectoryStorage

if TYPE_CHECKING:
    from core_sdk._home.storage._shard import Shard, ShardUnion, file_conflicts, unite
    from core_sdk._home.storage._space import explained_by_disk

# Loaded when first used, which is in a save.
_NAMES = {"explained_by_disk": "_space", **dict.fromkeys(("Shard", "ShardUnion", "file_conflicts", "unite"), "_shard")}
__getattr__, __dir__ = lazy_names(__name__, _NAMES, _NAMES)
