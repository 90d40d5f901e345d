"""The records of the home that the environment names."""

from __future__ import annotations

from pathlib import Path

from core_sdk.cli._messages import say
from core_sdk.environment import Environment
from core_sdk.experiments.reviving import note_told, revive_master
from core_sdk.tracking import Home


def make_home() -> Home:
    """Returns the home, which is made if it is missing. Raises `HomeNotWritableError` or `HomeTooNewError`."""
    return Home.create(Environment.read().home)


def open_home() -> Home:
    """Returns the home. One that does not exist is empty. Raises `HomeTooNewError`.

    If the master was killed and is still needed, it is started again.
    """
    home = Home.open(Environment.read().home)
    go_on(home.root)
    return home


def go_on(home_root: Path, *, waits: bool = False) -> None:
    """Starts a master that was killed and is needed, like `revive_master`, or says once why it does not."""
    if told := revive_master(home_root, waits=waits):
        say(told)
        note_told(home_root)
