"""Google Cloud Storage, through its JSON API and, for uploads in parts, its XML API."""

from core_sdk.storage.bucket.gcs._bucket import GcsBucket

__all__ = ["GcsBucket"]
