"""Checkpoints in object stores: Google Cloud Storage, S3, Azure.

    <prefix>/<storage_id>/…               the files of a checkpoint
    <prefix>/<storage_id>/metadata.json   what the script said about it
    <prefix>/<storage_id>/.manifest.json  written last, only if none is there; it makes the checkpoint exist
    <prefix>/.claims/<token>              who is writing or removing what, so that remains of the dead are found

`Bucket` is the seam; there is an adapter for each store, imported on demand, and each holds only what differs. What is
common is here once: parts and ranges in parallel threads, trying again, comparing checksums, leases, sweeping. Every
file has its own object, also where an earlier checkpoint has the same content: the store then copies it by itself. So
any checkpoint can be deleted, or fetched with the store's own tools, without regard to others.
"""

from core_sdk.storage.bucket._limits import Limits
from core_sdk.storage.bucket._open import CONFIG_KEYS, bucket_storage_from_config, bucket_storage_from_url
from core_sdk.storage.bucket._storage import BucketStorage
