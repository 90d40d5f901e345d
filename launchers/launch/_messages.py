"""The launcher's own messages, each line of which is marked as its own."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from core_sdk.processes.output import Outlet

_STDERR = 2
MARK = "[core-sdk] "


def marked(lines: Iterable[str]) -> str:
    return "".join(f"{MARK}{line}\n" for line in lines)


def say(lines: Iterable[str], is_hurried: threading.Event | None = None) -> None:
    """Writes to stderr, since stdout is the script's. Waits for the reader; after `is_hurried` is set, only seconds."""
    outlet = Outlet(_STDERR, is_hurried or threading.Event())
    outlet.write(marked(lines).encode(errors="backslashreplace"))
    outlet.close()
