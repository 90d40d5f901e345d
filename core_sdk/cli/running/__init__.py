"""Attempts in the foreground: `core-sdk run`, `trial resume`, `trial continue` and `trial pause`."""
