"""Messages for people go to stderr, since stdout is for results and for the output of scripts."""

from __future__ import annotations

import contextlib
import sys

from core_sdk._interfaces.render.text import printable


def say(text: str) -> None:
    """Prints one line."""
    with contextlib.suppress(OSError):  # a closed terminal must not end a training
        print(message(text), file=sys.stderr, flush=True)


def message(text: str) -> str:
    """Returns the line that `say` prints, without its newline."""
    return f"core-sdk: {printable(text)}"
