"""The blobs of Azure Storage."""

from core_sdk.storage.bucket.azure._bucket import AzureBucket

__all__ = ["AzureBucket"]
