"""Keeps what the loaders of a training tell of their data: for how long it has waited for them, and how far it is."""
