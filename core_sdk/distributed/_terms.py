"""What a caller says of the group that is to be made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Terms:
    """How a group is to be made, beyond its numbers."""

    chief_ip: str | None
    number: int
    """Tells the groups of one parent process apart."""
    has_tcp_only: bool
    rendezvous: str | None
    timeout_s: float
    join_timeout_s: float

    def __post_init__(self) -> None:
        for name, timeout_s in (("timeout_s", self.timeout_s), ("join_timeout_s", self.join_timeout_s)):
            if not timeout_s > 0:
                raise ValueError(f"{name} is {timeout_s}; it must be a number of seconds above 0")
