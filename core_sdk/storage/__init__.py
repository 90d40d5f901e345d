"""Where checkpoint bytes live.

`Storage` is the seam; `DirectoryStorage`, for a directory or a shared file system, is its first implementation:

    <root>/<storage_id>/…               the files of a checkpoint, as they were written
    <root>/<storage_id>/metadata.json   what the script said about it
    <root>/<storage_id>/.manifest.json  every file's size and CRC-32C; written last, it makes the checkpoint exist
    <root>/.staging/<token>/            a checkpoint that is being written or removed
    <root>/.staging/<token>.lock        locked by the process that does so, for as long as it lives

A checkpoint is written under `.staging`, fsynced, and renamed: it is whole or invisible. Removal renames it back first.
Of a sharded one every rank has a directory under `.staging`; at the end the ranks rename their files into the chief's.
What a dead process left under `.staging` is swept by the next one that saves. A lock is believed at once on the machine
that took it; one of another machine only after an hour without a change, since not every shared file system has locks.

Why checksums, when disks and file systems have their own: a flipped bit in a tensor loads without a word and trains on.
Reading a checkpoint back is as fast as memory allows, so every restore verifies.
"""

from core_sdk.storage._manifest import without
from core_sdk.storage._names import METADATA_NAME, check_storage_id
from core_sdk.storage._open import check_directory, open_storage, storage_from_url
from core_sdk.storage._shard import Shard, ShardUnion, file_conflicts, unite
from core_sdk.storage._storage import Selector, Staging, Storage
from core_sdk.storage.directory._storage import DirectoryStorage
