"""The commands of `core-sdk model`."""
