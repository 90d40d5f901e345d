"""Messages to standard error by wandb's functions."""

from __future__ import annotations

import sys

_said: set[str] = set()


def termlog(string: str = "", newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Prints a message. With `repeat=False` only the first one of its text is printed."""
    _print("", string, newline, repeat, prefix)


def termwarn(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Prints a warning."""
    _print("WARNING ", string, newline, repeat, prefix)


def termerror(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Prints an error."""
    _print("ERROR ", string, newline, repeat, prefix)


def _print(level: str, string: str, newline: bool, repeat: bool, prefix: bool) -> None:
    if repeat or string not in _said:
        _said.add(string)
        before = f"wandb: {level}" if prefix else level
        print("\n".join(before + line for line in string.split("\n")), end="\n" if newline else "", file=sys.stderr)
