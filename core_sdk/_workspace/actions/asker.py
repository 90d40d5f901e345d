"""Who asks the present request: a server for several people says so, and routes read it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Asker:
    """The one who asks, as records name them, and what they may do."""

    name: str
    can_act: bool
    """Whether they may change records."""
    is_owner: bool = True
    """Whether they may ask for what concerns the trainings of others."""


_asker: ContextVar[Asker] = ContextVar("asker")
"""Each request has a context of its own, which also the thread that answers it sees."""


def present_asker() -> Asker:
    """Returns who asks; a server that knows nobody by name is used by its owner."""
    return _asker.get(Asker("core-sdk ui", can_act=True))


def set_asker(asker: Asker) -> None:
    """Says who asks the request that is being answered."""
    _asker.set(asker)
