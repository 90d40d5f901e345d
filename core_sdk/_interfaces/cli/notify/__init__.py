"""The commands of `core-sdk notify`."""
