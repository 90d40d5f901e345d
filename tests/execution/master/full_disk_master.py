"""A master whose disk refuses some events: `full_disk_master.py FIRST COUNT`."""

from __future__ import annotations

import errno
import os
import sys

from core_sdk._execution.experiments.events import EventJournal
from core_sdk._execution.master.__main__ import main
from core_sdk._ground.records import Event


def refuse(first: int, count: int) -> None:
    append = EventJournal.append
    num_asked = 0

    def refusing(journal: EventJournal, event: Event) -> None:
        nonlocal num_asked
        num_asked += 1
        if first <= num_asked < first + count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(journal, event)

    setattr(EventJournal, "append", refusing)  # noqa: B010 - as a constant, its type would be checked


if __name__ == "__main__":
    refuse(int(sys.argv.pop(1)), int(sys.argv.pop(1)))
    main()
