"""The slots of this machine, which all its users share: GPUs, or places on the CPU.

A process that wants slots puts a ticket into a directory that every user may write. A ticket is a file of its owner's,
locked by the processes that wait with it, and later by the processes of the attempt that has the slots
(`core_sdk/_ground/alive.py`): when they are gone, however they ended, the ticket is void, and its slots are free. If
agent and guardian were killed at once, nobody has the lock, and the processes are found by what the agent has noted in
the ticket. Tickets are read and written under a lock of the directory, and the earliest comes first. All that is
decided is in `turns`, a pure function of the tickets.

    000017.ticket   what it waits for, or holds; everybody reads it
    000017.trial    the home and the trial; its owner alone reads it
"""

from __future__ import annotations

from core_sdk._machine.slots.directory import SlotDirectory, Ticket
from core_sdk._machine.slots.machine import Machine, Slots
from core_sdk._machine.slots.turns import PostedTicket, clock, describe_line, obstacles, waiting_line
from core_sdk._machine.slots.waiting import obstacles_of, taken_slots
