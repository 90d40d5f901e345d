"""Checkpoints in object stores: Google Cloud Storage, S3, Azure.

    <prefix>/<storage_id>/…               the files of a checkpoint
    <prefix>/<storage_id>/metadata.json   what the script said about it
    <prefix>/<storage_id>/.manifest.json  written last, only if none is there; it makes the checkpoint exist
    <prefix>/.leases/<token>              who is writing or removing what, so that remains of the dead are found

`Bucket` is the seam. Each store has an adapter, which is imported on demand and holds only what differs. What the
stores have in common is here once: parts and ranges in parallel threads, retries, checksums, leases, sweeping. Every
file has its own object, even if an earlier checkpoint has the same content; then the store copies the object itself. So
any checkpoint can be deleted, or fetched with the store's own tools, without regard to others.
"""

from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._settings import check_azure, check_s3
from core_sdk._home.storage.bucket._storage import BucketStorage
