"""Whose turn it is follows from the tickets alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from core_sdk._machine.slots import PostedTicket
from core_sdk._machine.slots.turns import obstacles, slots_for

ALL = ("a", "b", "c", "d")
NOON = 1_700_000_000.0


def ticket(
    number: int,
    num_wanted: int = 1,
    held: Sequence[str] = (),
    *,
    usable: Sequence[str] = ALL,
    place: int | None = None,
    is_asleep: bool = False,
    user: str = "ann",
    home: str | None = None,
    trial_id: int | None = None,
) -> PostedTicket:
    place = number if place is None else place
    return PostedTicket(number, place, num_wanted, usable, held, user, 7, NOON, is_asleep, home, trial_id)


def test_a_free_slot_goes_to_the_first_in_line() -> None:
    """A free slot goes to the ticket that has waited longest."""
    tickets = [ticket(1, held="abc"), ticket(2), ticket(3)]

    assert (slots_for(2, tickets), slots_for(3, tickets)) == (["d"], ())


def test_a_large_ticket_is_not_overtaken() -> None:
    """Free slots are kept for a large ticket that waits, and small ones that come later do not get them."""
    tickets = [ticket(1, held="ab"), ticket(2, 3), ticket(3)]

    assert (slots_for(2, tickets), slots_for(3, tickets)) == ((), ())


def test_tickets_for_other_slots_do_not_wait_for_each_other() -> None:
    """A ticket that waits keeps back only the slots that it could use."""
    tickets = [ticket(1, held="a"), ticket(2, 2, usable="ab"), ticket(3, 2, usable="bcd")]

    assert (slots_for(2, tickets), slots_for(3, tickets)) == ((), ["c", "d"])


def test_a_ticket_may_take_the_place_of_an_earlier_one() -> None:
    """A ticket with an earlier place comes before those that have waited longer."""
    tickets = [ticket(1, held="abc"), ticket(2), ticket(3, place=1)]

    assert (slots_for(2, tickets), slots_for(3, tickets)) == ((), ["d"])


def test_a_stopped_process_holds_up_nobody() -> None:
    """Nothing is kept for a ticket whose process does not look for its turn, but its place stays."""
    tickets = [ticket(1, held="abc"), ticket(2, is_asleep=True), ticket(3)]

    assert (slots_for(2, tickets), slots_for(3, tickets)) == (["d"], ["d"])


def test_the_words_name_the_owners_trial_and_other_users_only() -> None:
    """Who waits is told its own trials, and of others who they are; nothing where all is its own home's."""
    own = ticket(2, home="/h", held="b", trial_id=5)

    told = obstacles(4, [ticket(1, held="a", user="ben"), own, ticket(3, 4), ticket(4, 3, home="/h")], Path("/h"))

    assert told.startswith("waiting for 3 of 4 slots: ben (process 7) has a since 2023-11-14 ")
    assert "; trial 5 of /h has b since" in told
    assert "; ann (process 7) waits for 4 since" in told
    assert obstacles(4, [own, ticket(4, 3, home="/h")], Path("/h")) == ""


@given(st.data())
def test_slots_are_never_shared_and_never_idle_for_whom_they_suffice(data: st.DataObject) -> None:
    """Whatever the tickets: none gets what another has, and the first in line gets what it wants as soon as it can."""
    slots = st.lists(st.sampled_from(ALL), unique=True)
    free, tickets = list(ALL), []
    for number in range(1, data.draw(st.integers(1, 6)) + 1):
        usable = data.draw(slots)
        num_wanted = data.draw(st.integers(1, 3))
        takes = data.draw(st.booleans()) and len(set(usable) & set(free)) >= num_wanted
        held = [slot for slot in usable if slot in free][:num_wanted] if takes else []
        free = [slot for slot in free if slot not in held]
        tickets.append(ticket(number, num_wanted, held, usable=usable))

    waiting = [each for each in tickets if not each.held]
    given_out = {each.number: slots_for(each.number, tickets) for each in waiting}

    got = [slot for held in given_out.values() for slot in held]
    assert len(got) == len(set(got)) and set(got) <= set(free)
    for each in waiting:
        assert len(given_out[each.number]) in (0, each.num_wanted) and set(given_out[each.number]) <= set(each.usable)
    if waiting and len(set(waiting[0].usable) & set(free)) >= waiting[0].num_wanted:
        assert given_out[waiting[0].number]
