"""The master, its slots and its queue: `core-sdk master`, `slot` and `queue`."""
