"""Google Cloud Storage, through its JSON API and, for uploads in parts, its XML API."""
