"""The commands of `core-sdk trial`."""
