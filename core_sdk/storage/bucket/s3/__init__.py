"""Amazon S3, and servers that speak like it."""

from core_sdk.storage.bucket.s3._bucket import S3Bucket

__all__ = ["S3Bucket"]
