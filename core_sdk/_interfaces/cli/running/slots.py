"""Slots of this machine for the attempt of one command, which waits for its turn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._messages import say
from core_sdk._machine.slots import Slots, taken_slots


@contextlib.contextmanager
def slots_in_turn(num_slots: int | None, home: Path, *, avoids_busy: bool = False) -> Iterator[Slots | None]:
    """Takes slots for the block as `taken_slots` does. While others have them, it says who, and waits for its turn.

    Ctrl-C ends the wait, and the command with the status for it.
    """
    with contextlib.ExitStack() as stack:
        taking = taken_slots(num_slots, home, lambda who: say(f"{who} (Ctrl-C ends it)"), avoids_busy=avoids_busy)
        try:
            slots = stack.enter_context(taking)
        except KeyboardInterrupt:
            say("it no longer waits for slots, and nothing was started")
            raise click.exceptions.Exit(ExitCode.CANCELED) from None
        yield slots
