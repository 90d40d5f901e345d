"""The spool of a process whose node does not see the home: a directory of the node that takes the home's place."""

from __future__ import annotations

import os
from pathlib import Path

from core_sdk._ground.environment.names import HOME_VARIABLE, SPOOLED_HOME_VARIABLE


def spool_variables(home: Path) -> dict[str, str]:
    """Returns the variables of a process whose home is a spool for `home`."""
    return {SPOOLED_HOME_VARIABLE: str(home)}


def use_home(home: Path, spool: Path | None) -> None:
    """Makes this process keep its records in `home`, or in `spool`, from which they are copied to `home`."""
    if spool is None and os.environ.get(HOME_VARIABLE) == str(home):
        return  # `home` may itself be a spool
    os.environ[HOME_VARIABLE] = str(spool or home)
    if spool is None:
        os.environ.pop(SPOOLED_HOME_VARIABLE, None)
    else:
        os.environ[SPOOLED_HOME_VARIABLE] = str(home)


def is_home_spooled() -> bool:
    """Returns whether this process keeps its records in a spool."""
    return bool(os.environ.get(SPOOLED_HOME_VARIABLE))


def path_here(path: Path) -> Path:
    """Returns the path in this process for a `path` on the machine of the home."""
    return _moved(path, SPOOLED_HOME_VARIABLE, HOME_VARIABLE)


def path_at_home(path: Path) -> Path:
    """Returns the path on the machine of the home for a `path` in this process. Records use such paths."""
    return _moved(path, HOME_VARIABLE, SPOOLED_HOME_VARIABLE)


def _moved(path: Path, source: str, target: str) -> Path:
    if not is_home_spooled():
        return path
    before, after = Path(os.environ[source]), Path(os.environ[target])
    return after / path.relative_to(before) if path.is_relative_to(before) else path
