"""The commands of `core-sdk checkpoint`."""
