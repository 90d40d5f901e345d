"""Marks, by which a guardian knows the processes that its supervisor has started, and those below them.

A mark is a variable with a name of its own. Processes inherit it, so that each carries the marks of all supervisors
above it. `core_sdk._machine.processes` describes how guardians use marks.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from core_sdk._ground.environment.names import MARK_PREFIX


class Mark(NamedTuple):
    name: str
    value: str

    @classmethod
    def of(cls, path: Path) -> Mark:
        """Makes a mark of a path that belongs to one supervisor only: its directory, or the run info of its attempt."""
        resolved = path.resolve()
        return cls(MARK_PREFIX + hashlib.sha256(os.fsencode(resolved)).hexdigest()[:16], str(resolved))

    @property
    def variables(self) -> dict[str, str]:
        return {self.name: self.value}

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def marks(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the marks that this process carries."""
    return {name: value for name, value in variables.items() if name.startswith(MARK_PREFIX)}
