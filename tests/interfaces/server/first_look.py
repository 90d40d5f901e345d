"""A first look at a home that stops on its way, as if it took long."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from home.journals import new_trial, record, report

from core_sdk._home import Home
from core_sdk._interfaces.server.shared_view import SharedView


@contextmanager
def slow_reading(home: Home) -> Iterator[threading.Event]:
    """Writes four trials, of which the older two are read once the event is set."""
    for lr in (0.1, 0.2, 0.3, 0.4):
        folder = new_trial(home, lr=lr)
        record(folder, report(1, loss=lr))
        os.utime(folder.path, (0, 0))  # a folder that has just changed is read again
    go_on, parts = threading.Event(), iter(range(100))
    original = SharedView._look_at_part

    def look_at_part(shared: SharedView, _within_s: float) -> bool:
        if next(parts) == 2:
            go_on.wait(60)
        return original(shared, 0.0)  # one trial

    with patch.object(SharedView, "_look_at_part", look_at_part):
        try:
            yield go_on
        finally:
            go_on.set()
