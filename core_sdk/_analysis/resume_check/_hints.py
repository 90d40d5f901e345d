"""Explains the last lines of a training that has failed to the person who checks it."""

from __future__ import annotations

from collections.abc import Sequence

_HINTS = {
    "EOFError": "it has read from stdin, which is empty here: let the command ask for nothing",
    "Inappropriate ioctl for device": "it needs a terminal, and has none here",
    "out of memory": "the memory of the GPU is full: `nvidia-smi` shows which other processes use it",
    "Address already in use": "a port is taken, perhaps by another training: let the system choose a free one",
}


def hint_of(lines: Sequence[str]) -> str:
    """Returns what to do, or an empty text if the lines have no known meaning. Pure."""
    return next((hint for mark, hint in _HINTS.items() if any(mark in line for line in lines)), "")
