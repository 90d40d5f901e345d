"""What a test may ask of a server that keeps objects."""

from __future__ import annotations

from typing import Protocol


class BucketServer(Protocol):
    """A running server, to be used by this process or by another, directly or through a proxy before it."""

    name: str
    """What tests are called after: "moto", "fake-gcs-server"."""
    address: tuple[str, int]

    def variables(self, address: tuple[str, int] | None = None) -> dict[str, str]:
        """Returns the environment with which a process uses it: at its own address, or at a proxy's before it."""

    def make_bucket(self, address: tuple[str, int] | None = None) -> str:
        """Makes a fresh bucket; gives its URL for `storage_from_url`, which may name the address."""
