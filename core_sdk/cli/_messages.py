"""What the command line says to the person, on stderr: stdout belongs to results and to the script's output."""

from __future__ import annotations

import contextlib
import sys

from core_sdk.cli.render.text import printable


def say(text: str) -> None:
    """One line."""
    with contextlib.suppress(OSError):  # a closed terminal must not end what we supervise
        print(message(text), file=sys.stderr, flush=True)


def message(text: str) -> str:
    """The line, without its end, by which `say` says the text."""
    return f"core-sdk: {printable(text)}"
