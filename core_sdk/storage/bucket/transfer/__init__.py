"""Many files at once on their way between a disk and a bucket."""
