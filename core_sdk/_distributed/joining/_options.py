"""The options for making a group of ranks."""

from __future__ import annotations

import msgspec

DEFAULT_NUMBER = 12360
TIMEOUT_S = 1800.0
JOIN_TIMEOUT_S = 600.0


class JoinOptions(msgspec.Struct, frozen=True):
    """The arguments of a `DistributedContext` besides the six numbers."""

    chief_ip: str | None = None
    number: int = DEFAULT_NUMBER
    """A number that distinguishes groups of one parent process or of one home; between nodes, the port."""
    has_tcp_only: bool = False
    rendezvous: str | None = None
    timeout_s: float = TIMEOUT_S
    join_timeout_s: float = JOIN_TIMEOUT_S

    def __post_init__(self) -> None:
        for name, timeout_s in (("timeout_s", self.timeout_s), ("join_timeout_s", self.join_timeout_s)):
            try:
                is_time = timeout_s > 0
            except TypeError:
                raise TypeError(f"{name} is {timeout_s!r}; it must be a number of seconds") from None
            if not is_time:
                raise ValueError(f"{name} is {timeout_s}; it must be a number of seconds above 0")
