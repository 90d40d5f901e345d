"""Amazon S3, and servers that speak like it."""
