"""The journal of an experiment's events, behind a writer that died."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from core_sdk._execution.experiments.events import EventJournal, read_new_events
from core_sdk._ground.records import StopSent


@pytest.mark.parametrize("num_bytes", [1, 5 << 20])
@pytest.mark.parametrize("num_events", [0, 1])
def test_half_a_line_is_removed_before_the_next_event(tmp_path: Path, num_events: int, num_bytes: int) -> None:
    """An unfinished line at the end of the journal, however long, is removed before the next event is written."""
    path = tmp_path / "events.journal"
    event = StopSent(time=1.0, request_id=UUID(int=1), attempt=1, reason="a test", kill_at=2.0)
    journal = EventJournal(path)
    for _ in range(num_events):
        journal.append(event)
    journal.close()
    with path.open("ab") as file:
        file.write(b"x" * num_bytes)

    journal = EventJournal(path)
    journal.append(event)
    journal.close()

    assert [each for events, _ in read_new_events(path, 0) for each in events] == [event] * (num_events + 1)
