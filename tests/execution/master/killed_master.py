"""A master that is killed at the N-th event that it appends: `killed_master.py N before|after`."""

from __future__ import annotations

import os
import signal
import sys

from core_sdk._execution.experiments.events import EventJournal
from core_sdk._execution.master.__main__ import main
from core_sdk._ground.records import Event


def die_at(number: int, moment: str) -> None:
    append = EventJournal.append
    num_appended = 0

    def counting(journal: EventJournal, event: Event) -> None:
        nonlocal num_appended
        num_appended += 1
        if num_appended == number and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        append(journal, event)
        if num_appended == number:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(EventJournal, "append", counting)  # noqa: B010 - as a constant, its type would be checked


if __name__ == "__main__":
    die_at(int(sys.argv.pop(1)), sys.argv.pop(1))
    main()
