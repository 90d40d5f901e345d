"""The blobs of Azure Storage."""
