"""Checkpoints in a directory, of one machine or of a file system that many share."""
