"""Attempts in the foreground: `core-sdk run`, `trial resume` and `trial continue`."""
