"""Decides who gets slots next, by pure functions of the tickets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec


class PostedTicket(msgspec.Struct, frozen=True):
    """A ticket of living processes, as everybody may read it."""

    number: int
    place: int
    """The place in the line; smaller ones come first. A ticket that replaces another one takes its number as place."""
    num_wanted: int
    usable: Sequence[str]
    """The names of the slots that it could use, those that it prefers first."""
    held: Sequence[str]
    """The slots that it has; empty while it waits."""
    user: str
    pid: int
    """The process that waits, or has waited. It may run in another container."""
    since: float
    """The time since which it waits, or has the slots, in seconds since the epoch."""
    is_asleep: bool = False
    """Whether it waits, but has not looked for its turn lately, since its process was stopped (Ctrl-Z)."""
    home: str | None = None
    """The home of its trial; None for a ticket of another user, as is `trial_id`."""
    trial_id: int | None = None
    """The trial that has the slots; None while it waits."""
    left: Sequence[int] = ()
    """The processes of its attempt that live on, if whoever supervised them was killed."""


def slots_for(number: int, tickets: Iterable[PostedTicket]) -> Sequence[str]:
    """Returns the slots that this waiting ticket gets now; empty if it has to wait.

    Free slots are kept for tickets that have waited longer and could use them, as many as each of these wants, so that
    small tickets never overtake a large one. Tickets for other slots do not wait for each other.
    """
    tickets = list(tickets)
    taken = {slot for ticket in tickets for slot in ticket.held}
    for ticket in waiting_line(tickets):
        free = [slot for slot in ticket.usable if slot not in taken][: ticket.num_wanted]
        if ticket.number == number:
            return free if len(free) == ticket.num_wanted else ()
        taken.update(() if ticket.is_asleep else free)
    return ()


def obstacles(number: int, tickets: Iterable[PostedTicket], home: Path | None = None) -> str:
    """Returns in words who has the slots that this waiting ticket could use; empty if only trials of `home` have."""
    tickets = list(tickets)
    own = next(ticket for ticket in tickets if ticket.number == number)
    before = [ticket for ticket in waiting_line(tickets) if (ticket.place, ticket.number) < (own.place, own.number)]
    holders = [ticket for ticket in tickets if not set(ticket.held).isdisjoint(own.usable)]
    first = [ticket for ticket in before if not set(ticket.usable).isdisjoint(own.usable) and not ticket.is_asleep]
    if home is not None and all(ticket.home == str(home) for ticket in (*holders, *first)):
        return ""
    told = [f"{_owner(ticket)} has {_listed(ticket.held)} since {clock(ticket.since)}" for ticket in holders]
    told += _told_waiting(first)
    return f"waiting for {own.num_wanted} of {len(own.usable)} slots" + (f": {'; '.join(told)}" if told else "")


def describe_line(tickets: Iterable[PostedTicket]) -> str:
    """Returns who waits, and for how many slots, in the order of their turns; empty if nobody does."""
    return "; ".join(_told_waiting(waiting_line(tickets)))


def _told_waiting(tickets: Iterable[PostedTicket]) -> list[str]:
    return [f"{_owner(ticket)} waits for {ticket.num_wanted} since {clock(ticket.since)}" for ticket in tickets]


def waiting_line(tickets: Iterable[PostedTicket]) -> list[PostedTicket]:
    """Returns the tickets that wait, in the order of their turns."""
    return sorted((each for each in tickets if not each.held), key=lambda each: (each.place, each.number))


def _owner(ticket: PostedTicket) -> str:
    left = ", ".join(map(str, ticket.left))
    if ticket.home is None:
        return f"{ticket.user} (process {left or ticket.pid})"
    if left and ticket.trial_id is not None:
        ending = f"`core-sdk trial kill {ticket.trial_id}` ends what its agent has left: process {left}"
        return f"trial {ticket.trial_id} of {ticket.home} ({ending})"
    return f"a trial of {ticket.home}" if ticket.trial_id is None else f"trial {ticket.trial_id} of {ticket.home}"


def _listed(slots: Sequence[str]) -> str:
    return ", ".join(slots)


def clock(seconds: float) -> str:
    """Returns a time of this day as 10:31, and another one with its date."""
    there = time.localtime(seconds)
    is_today = there[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", there)
