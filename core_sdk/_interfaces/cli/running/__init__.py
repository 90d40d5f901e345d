"""The commands that run attempts: `core-sdk run`, `trial resume` and `trial continue`."""
