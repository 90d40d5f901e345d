"""Takes slots for one command, which waits for its turn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from core_sdk._machine.slots.directory import SlotDirectory, Ticket, unusable
from core_sdk._machine.slots.machine import Machine, Slots
from core_sdk.errors import SlotError, SlotsTakenError

_PAUSE_S = 0.2


@contextlib.contextmanager
def taken_slots(
    num_slots: int | None, home: Path, tell: Callable[[str], None] | None = None, *, avoids_busy: bool = False
) -> Iterator[Slots | None]:
    """Takes slots of this machine for an attempt of `home`, as soon as those who came earlier have theirs.

    At the end of the block they are given back, unless an attempt has been started on them. Without a number none are
    taken. `tell` gets the words of who has them, once, if they are not free; without it nobody waits. On the CPU there
    may be more places than CPUs. With `avoids_busy`, GPUs that programs without a slot fill are not taken.

    Raises `SlotsTakenError` if nobody waits, and other `SlotError`s.
    """
    if num_slots is None:
        yield None
        return
    asked = time.time()
    machine = Machine.here(avoids_busy=avoids_busy)
    if not machine.gpus:
        machine = Machine(max(num_slots, machine.num_slots))
    elif num_slots > machine.num_slots:
        raise SlotError(
            f"{num_slots} slots were asked for, and this machine has {machine.num_slots} GPUs. Ask for fewer."
        )
    directory = SlotDirectory()
    with _naming_lock(directory):
        ticket = Ticket(directory, home, num_slots, machine.usable())
    try:
        if not ticket.held and tell is None:
            raise SlotsTakenError(obstacles_of(ticket, machine))
        if not ticket.held and tell is not None:
            tell(obstacles_of(ticket, machine))
        with _naming_lock(directory):
            while not ticket.held:
                time.sleep(_PAUSE_S)
                ticket.take(num_slots, machine.usable())
        yield replace(machine.held(ticket), asked=asked)
    finally:
        ticket.release()


@contextlib.contextmanager
def _naming_lock(directory: SlotDirectory) -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        problem = "another process has had its lock for long, perhaps since it was stopped (Ctrl-Z)"
        raise unusable(directory.path, problem) from error


def obstacles_of(ticket: Ticket, machine: Machine, home: Path | None = None) -> str:
    """Returns who has the slots for which the ticket waits; empty if only trials of `home` have them."""
    busy = sorted(set(machine.names) - set(machine.usable()))
    told = [f"programs without a slot fill {', '.join(busy)}"] if busy else []
    return "; ".join([*([each] if (each := ticket.obstacles(home)) else []), *told])
