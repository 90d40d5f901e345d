"""What a caller says of the group that is to be made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JoinOptions:
    """How a group is to be made, beyond its numbers."""

    chief_ip: str | None
    number: int
    """Tells the groups of one parent process, or of one home, apart."""
    has_tcp_only: bool
    rendezvous: str | None
    timeout_s: float
    join_timeout_s: float

    def __post_init__(self) -> None:
        for name, timeout_s in (("timeout_s", self.timeout_s), ("join_timeout_s", self.join_timeout_s)):
            try:
                is_time = timeout_s > 0
            except TypeError:
                raise TypeError(f"{name} is {timeout_s!r}; it must be a number of seconds") from None
            if not is_time:
                raise ValueError(f"{name} is {timeout_s}; it must be a number of seconds above 0")
