"""Transfers many files at once between a disk and a bucket."""
