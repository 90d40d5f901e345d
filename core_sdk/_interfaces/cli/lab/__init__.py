"""The server of a lab: `core-sdk server`."""
